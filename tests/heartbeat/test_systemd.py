"""sd_notify, heard by a socket that stands for systemd."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from llm_heartbeat import systemd


class Systemd:
    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)

    def heard(self) -> list[str]:
        found = []
        while True:
            try:
                found.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return found


def test_systemd_hears_ready_and_the_watchdog_only_while_live(tmp_path: Path) -> None:
    listening = Systemd(tmp_path / "notify")
    notifier = systemd.Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "10000000"})
    assert notifier.watchdog_every == 5
    notifier.tick(0, live=True, ready=False, status="loading")
    assert listening.heard() == ["STATUS=loading", "WATCHDOG=1"]
    notifier.tick(1, live=True, ready=True, status="ready")
    notifier.tick(5, live=True, ready=True, status="ready")
    assert listening.heard() == ["READY=1", "STATUS=ready", "WATCHDOG=1"]
    for second in range(6, 60):
        notifier.tick(second, live=False, ready=True, status="stuck")
    assert listening.heard() == ["STATUS=stuck"]
    notifier.tick(60, live=True, ready=True, status="ready, draining")
    assert listening.heard() == ["STATUS=ready, draining", "WATCHDOG=1"]
    listening.socket.close()


def test_systemd_is_not_asked_where_it_is_not() -> None:
    notifier = systemd.Notifier({})
    notifier.tick(0, live=True, ready=True, status="x")
    assert notifier.watchdog_every is None


@pytest.mark.parametrize(
    ("pid", "asked"), [(os.getpid(), True), (os.getppid(), True), (2**22 + 1, False)], ids=["main", "server", "other"]
)
def test_the_watchdog_is_petted_by_the_main_process_and_by_its_servers(pid: int, asked: bool) -> None:
    environ = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": str(pid)}
    assert (systemd.Notifier(environ).watchdog_every is not None) == asked
