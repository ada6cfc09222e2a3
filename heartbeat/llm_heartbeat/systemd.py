"""sd_notify without a library: READY, WATCHDOG and STATUS as datagrams to `NOTIFY_SOCKET`.

STOPPING is never sent: systemd knows of a stop that it ordered, and would end the whole service for a worker that drains.
"""

import os
import socket
from collections.abc import Mapping


class Notifier:
    """Does nothing where systemd did not ask for it. `watchdog_every` is half of the unit's `WatchdogSec`, seconds."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        self._address = environ.get("NOTIFY_SOCKET", "")
        # The main process, or a server that it started: with several API servers the main one has no loop of its own.
        asked = environ.get("WATCHDOG_PID") in (None, str(os.getpid()), str(os.getppid()))
        usec = environ.get("WATCHDOG_USEC", "")
        self.watchdog_every = int(usec) / 2e6 if self._address and asked and usec.isdigit() else None
        self._petted: float | None = None
        self._said: dict[str, str] = {}

    @property
    def listens(self) -> bool:
        """Whether systemd asked to be told."""
        return bool(self._address)

    def tick(self, now: float, live: bool, ready: bool, status: str) -> None:
        """Tell what changed; pet the watchdog only while the loop is alive. OSError if systemd does not listen."""
        if not self._address:
            return
        if ready:
            self._once("READY", "1")
        self._once("STATUS", status)
        due = self._petted is None or now - self._petted >= (self.watchdog_every or 0)
        if self.watchdog_every is not None and live and due:
            self._petted = now
            self._send("WATCHDOG=1")

    def _once(self, key: str, value: str) -> None:
        if self._said.get(key) != value:
            self._send(f"{key}={value}")
            self._said[key] = value

    def _send(self, message: str) -> None:
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.connect(address)
            out.sendall(message.encode())
