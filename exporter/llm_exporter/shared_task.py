"""One task for all who ask at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SharedTask(Generic[T]):
    """Runs `make` for the first who asks, and for the next once that run has ended; a caller who leaves ends nothing."""

    def __init__(self, name: str, make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._name = name
        self._make = make
        self._task: asyncio.Task[T] | None = None

    async def result(self) -> T:
        """The result of the run under way, or of a new one."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._make(), name=self._name)
        return await asyncio.shield(self._task)

    async def stop(self) -> None:
        """Cancel the run under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
