"""The side port over time: another process may have it now, and end before us."""

import threading
from collections.abc import Callable

from llm_heartbeat import peers
from llm_heartbeat.faults import Faults, log
from llm_heartbeat.settings import Settings, parse_listen
from llm_heartbeat.side_port import Answers, SidePort

_AGAIN = 5.0  # seconds


class Listening:
    """Holds the side port from `start()` to `stop()`, as far as it can be had. Called from the loop's and our own thread."""

    def __init__(self, settings: Settings, answers: Answers, faults: Faults, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._answers = answers
        self._faults = faults
        self._clock = clock
        self._port: SidePort | None = None
        self._wanted = False
        self._due = 0.0
        self._lock = threading.Lock()

    @property
    def address(self) -> tuple[str, int] | None:
        """Address and port; None where there is none."""
        return self._port.address if self._port else None

    def start(self) -> None:
        """Have the port from now on. Idempotent."""
        self._wanted = bool(self._settings.listen)
        self.look()

    def look(self) -> None:
        """Try to have the port, if it is time for it."""
        with self._lock, self._faults.passed_by("side_port"):
            if self._wanted and self._port is None and self._clock() >= self._due:
                self._due = self._clock() + _AGAIN
                self._port = self._open()

    def stop(self) -> None:
        """Free the port."""
        with self._lock:
            self._wanted, self._due = False, 0.0
            if self._port is not None:
                self._port.stop()
                self._port = None

    def after_fork(self) -> None:
        """In a forked child: the port would stay taken by us after the parent's end."""
        self._lock = threading.Lock()
        if self._port is not None:
            self._port.close_inherited()
        self._port, self._wanted, self._due = None, False, 0.0

    def _open(self) -> SidePort | None:
        host, ports = parse_listen(self._settings.listen)
        try:
            port = SidePort(host, ports, self._answers)
        except OSError as error:
            shared = peers.directory(self._settings.state_dir)
            hint = "another process of this server answers there for all"
            if shared is None:
                hint = "if another process of this server has it, set LLM_HEARTBEAT_STATE_DIR, so that one answers for all"
            self._faults.note("side_port", f"cannot listen on {self._settings.listen}: {error}; {hint}")
            return None
        port.start()
        log.info("heartbeat on http://%s:%d%s/live", *port.address, self._settings.prefix)
        return port
