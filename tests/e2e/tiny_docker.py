"""A tiny image made of this machine's own shell, and a person's hands on Docker, for tests of the runtime."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
from docker.models.containers import Container

SOCKET = os.environ.get("STUCKPROOF_DOCKER_SOCKET", "/var/run/docker.sock")
"""Another engine's socket, for an occasional run against newer versions."""
IMAGE = "stuckproof.local/spb-tiny:1"
PREFIX = "spb-"


def engine() -> docker.DockerClient | None:
    """The Docker Engine, None if none answers."""
    try:
        client = docker.DockerClient(f"unix://{SOCKET}", timeout=60)
        client.ping()
    except (docker.errors.DockerException, OSError):
        return None
    return client


def import_image(client: docker.DockerClient) -> None:
    """`docker import` of /bin/sh, sleep and cat with the libraries they need."""
    programs = [shutil.which(p) or "" for p in ("sh", "sleep", "cat")]
    files: dict[str, Path] = {}
    for program in programs:
        real = Path(program).resolve()
        files[f"bin/{Path(program).name}"] = real
        listed = subprocess.run(["ldd", str(real)], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+)", listed):
            files[library.lstrip("/")] = Path(library).resolve()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in ("tmp", "proc", "sys", "dev", "etc"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        for name, path in sorted(files.items()):
            tar.add(path, name)
    client.api.import_image_from_data(packed.getvalue(), repository=IMAGE.split(":")[0], tag=IMAGE.split(":")[1])


class Hands:
    """Starts containers, and removes every one of them at the end."""

    def __init__(self, client: docker.DockerClient) -> None:
        self.client = client
        self._mine: list[Container] = []

    def name(self, stem: str = "c") -> str:
        """A name that nobody else has."""
        return f"{PREFIX}{stem}-{uuid.uuid4().hex[:8]}"

    def run(self, script: str = "sleep 1000 & wait", *, start: bool = True, **options: Any) -> Container:
        """A container of a shell script; by default a shell that dies of SIGTERM."""
        options.setdefault("name", self.name())
        options.setdefault("init", True)
        container = self.client.containers.create(IMAGE, ["sh", "-c", script], network_mode="none", **options)
        self._mine.append(container)
        if start:
            container.start()
        container.reload()
        return container

    def state(self, container: Container) -> dict[str, Any]:
        """`State` of inspect, read by the SDK and not by our code."""
        container.reload()
        found: dict[str, Any] = container.attrs["State"]
        return found

    def clean(self) -> None:
        """Remove everything this made."""
        for container in self._mine:
            try:
                container.remove(force=True)
            except docker.errors.APIError as exc:
                if exc.status_code not in (404, 409):
                    raise


def until(what: str, look: Callable[[], Any], within: float = 20.0) -> Any:
    """Poll until `look` is true."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {within:g} s: {what}")
