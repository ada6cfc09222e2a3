"""Background tasks that must never end: when one does, that is logged, counted, and turns the health red."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

_log = logging.getLogger("llm.guard")


class Guard:
    """Owns the eternal tasks of a process.

    ``deaths`` counts by kind of task (the name up to the first ``:``) how many ended by an error or by
    returning; ``healthy`` is False from the first death on. A task that its owner cancels did not die.
    """

    def __init__(self) -> None:
        self.deaths: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def healthy(self) -> bool:
        """True while no task has died."""
        return not self.deaths

    def spawn(
        self, name: str, factory: Callable[[], Coroutine[Any, Any, None]], *, eternal: bool = True
    ) -> asyncio.Task[None]:
        """Run ``factory()`` as a task that the caller may cancel; an `eternal` one dies by returning, too."""
        task = asyncio.create_task(factory(), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._eternal_ended if eternal else self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._died(task)

    def _eternal_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self._died(task)

    def _died(self, task: asyncio.Task[None]) -> None:
        name = task.get_name()
        self.deaths[name.partition(":")[0]] += 1
        error = task.exception()
        _log.error(
            "a background task ended that must not; restart this process",
            exc_info=error,
            extra={"task": name},
        )

    async def stop(self) -> None:
        """Cancel every task and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
