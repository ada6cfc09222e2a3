"""A Docker Engine of our own beside the machine's: for tests that stop, hang or swarm it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest

from e2e.tiny_docker import import_image, until

# `--bridge=none` deletes a docker0 that it finds: in the machine's own network that would be the other daemon's.
LOOPBACK_UP_AND_RUN = """
import fcntl, os, socket, struct, sys
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
os.execvp(sys.argv[1], sys.argv[1:])
"""


class OwnDockerd:
    """`dockerd` on a socket and in a network namespace of its own, without bridge; ended by its own process id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = f"{folder}/d.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *("unshare", "--net", "--", sys.executable, "-c", LOOPBACK_UP_AND_RUN),
                    "dockerd",
                    f"--data-root={self.folder}/root",
                    f"--exec-root={self.folder}/exec",
                    f"--host=unix://{self.socket}",
                    f"--pidfile={self.folder}/pid",
                    "--bridge=none",
                    "--iptables=false",
                    "--ip-forward=false",
                    "--shutdown-timeout=5",
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until("dockerd answers", self._answers, within=60)

    def _answers(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise AssertionError(f"dockerd ended: {(self.folder / 'log').read_text()[-2000:]}")
        if not os.path.exists(self.socket):
            return False
        # By hand: the SDK leaves its socket open when the answer is late.
        try:
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(5)
                line.connect(self.socket)
                line.sendall(b"GET /_ping HTTP/1.0\r\nHost: d\r\n\r\n")
                return b" 200 " in line.recv(100)
        except OSError:
            return False

    def client(self) -> docker.DockerClient:
        """A person's client, with the tiny image loaded."""
        client = docker.DockerClient(f"unix://{self.socket}", timeout=60)
        import_image(client)
        return client

    def send(self, number: signal.Signals) -> None:
        """A signal to dockerd itself."""
        assert self._process is not None
        self._process.send_signal(number)

    def ended(self) -> bool:
        """Whether its process is gone."""
        return self._process is None or self._process.poll() is not None

    def stop(self) -> None:
        """End it, and its containers."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)

    def remove(self) -> None:
        """Stop it and remove its files; network namespaces stay mounted below a daemon that ended."""
        self.stop()
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((m for m in mounts if m.startswith(f"{self.folder}/")), reverse=True):
            subprocess.run(["umount", "--lazy", mount], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def own_dockerd() -> Iterator[OwnDockerd]:
    """One that runs, and is gone afterwards; without root or `dockerd` the test is skipped."""
    if os.geteuid() != 0:
        pytest.skip("a Docker Engine of one's own needs root")
    if shutil.which("dockerd") is None:
        pytest.skip("dockerd is not installed")
    # Not pytest's folder: its path is too long for a Unix socket and it is kept.
    mine = OwnDockerd(Path(tempfile.mkdtemp(prefix="spb-", dir="/tmp")))
    try:
        mine.start()
        yield mine
    finally:
        mine.remove()
