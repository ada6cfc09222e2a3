"""The thread beside the loop: it takes the same steps again and again, whatever the loop does."""

import threading
from collections.abc import Callable, Mapping

from llm_heartbeat.faults import Faults


class Watchdog:
    """An error in one step is counted under its name and keeps no other step from being taken."""

    def __init__(self, pause: float, steps: Mapping[str, Callable[[], None]], faults: Faults) -> None:
        self._pause = pause
        self._steps = steps
        self._faults = faults
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, also in place of one that has died; idempotent. RuntimeError where no thread can be had."""
        if self._thread is not None and self._thread.is_alive():
            return
        if self._thread is not None:
            self._faults.note("watchdog", "its thread has died; another one is started")
        self._stopping, self._thread = threading.Event(), None
        thread = threading.Thread(target=self._run, args=(self._stopping,), name="llm-heartbeat-watchdog", daemon=True)
        thread.start()
        self._thread = thread

    def stop(self) -> None:
        """Ask the thread to end. It is not waited for: the loop's thread must not wait."""
        self._stopping.set()
        self._thread = None

    def after_fork(self) -> None:
        """In a forked child: the thread is not there, and it may have held the event's lock."""
        self._stopping, self._thread = threading.Event(), None

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.wait(self._pause):
            for where, step in self._steps.items():
                if stopping.is_set():
                    return
                with self._faults.passed_by(where):
                    step()
