"""HTTP requests inside the application: how many, and, if draining has a limit, which tasks."""

import asyncio
import logging

log = logging.getLogger("llm_heartbeat")


class InFlight:
    """`count` is changed by the loop's thread alone. Tasks are kept only where a limit may have to end them."""

    def __init__(self, drain_limit: float) -> None:
        self.count = 0
        self.tracks = drain_limit > 0
        self._limit = drain_limit
        self._tasks: set[asyncio.Task[object]] = set()

    def enter(self, task: "asyncio.Task[object]") -> None:
        """A request begins in that task."""
        self._tasks.add(task)

    def leave(self, task: "asyncio.Task[object]") -> None:
        """A request has ended."""
        self._tasks.discard(task)

    def end_overdue(self, draining_for: float, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel what is left once draining has taken longer than the limit; from any thread."""
        if self.tracks and draining_for > self._limit and self._tasks:
            loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._tasks:
            log.warning("draining took over %.0f s: %d requests are cancelled", self._limit, len(self._tasks))
        for task in tuple(self._tasks):
            task.cancel("drain limit")
        self._tasks.clear()
