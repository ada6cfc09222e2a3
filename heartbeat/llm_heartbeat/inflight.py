"""HTTP requests inside the application: how many, and, if draining has a limit, which tasks."""

import asyncio
from collections.abc import Callable
from types import TracebackType

from llm_heartbeat.faults import log


class InFlight:
    """`with requests:` around the application's handling of a request, in its task; an exception passes.

    `count` is changed by the loop's thread alone. Tasks are kept only where a limit may have to end them.
    """

    def __init__(self, drain_limit: float, out_of_memory: Callable[[], None]) -> None:
        self.count = 0
        self._out_of_memory = out_of_memory
        self._limit = drain_limit
        self._tasks: set[asyncio.Task[object] | None] = set()

    def __enter__(self) -> None:
        self.count += 1
        if self._limit:
            self._tasks.add(asyncio.current_task())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.count -= 1
        if self._limit:
            self._tasks.discard(asyncio.current_task())
        if kind is not None and kind.__name__ == "OutOfMemoryError":  # torch's, without importing torch
            self._out_of_memory()

    def end_overdue(self, draining_for: float, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel what is left once draining has taken longer than the limit; from any thread."""
        if self._tasks and draining_for > self._limit:
            loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        tasks = [task for task in self._tasks if task is not None]
        self._tasks.clear()
        for task in tasks:
            task.cancel("drain limit")
        if tasks:
            log.warning("draining took over %.0f s: %d requests are cancelled", self._limit, len(tasks))
