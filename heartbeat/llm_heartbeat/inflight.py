"""HTTP requests inside the application: how many, and, if draining has a limit, which tasks."""

import asyncio
from collections.abc import Callable
from types import TracebackType

from llm_heartbeat.faults import log


class InFlight:
    """`count` is changed by the loop's thread alone. Tasks are kept only where a limit may have to end them."""

    def __init__(self, drain_limit: float, out_of_memory: Callable[[], None]) -> None:
        self.count = 0
        self.out_of_memory = out_of_memory
        self.tasks: set[asyncio.Task[object]] | None = set() if drain_limit > 0 else None
        self._limit = drain_limit

    def one(self) -> "Request":
        """`with requests.one():` around the application's handling of a request, in its task."""
        return Request(self)

    def end_overdue(self, draining_for: float, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel what is left once draining has taken longer than the limit; from any thread."""
        if self.tasks and draining_for > self._limit:
            loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        tasks = tuple(self.tasks or ())
        for task in tasks:
            task.cancel("drain limit")
        if tasks:
            log.warning("draining took over %.0f s: %d requests are cancelled", self._limit, len(tasks))
        self.tasks = set()


class Request:
    """One request. An exception passes; torch's `OutOfMemoryError` is known by its name, since we do not import torch."""

    __slots__ = ("_all", "_task")

    def __init__(self, requests: InFlight) -> None:
        self._all = requests
        self._task: asyncio.Task[object] | None = None

    def __enter__(self) -> None:
        self._all.count += 1
        if self._all.tasks is not None:
            self._task = asyncio.current_task()
            if self._task is not None:
                self._all.tasks.add(self._task)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._all.count -= 1
        if self._all.tasks is not None and self._task is not None:
            self._all.tasks.discard(self._task)
        if kind is not None and kind.__name__ == "OutOfMemoryError":
            self._all.out_of_memory()
