"""A target's one canary on its way: at most one in flight, and its landing is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from llm_common.guard import Guard
from llm_exporter.judge import CanaryOutcome, CanaryRequest


class CanaryFlight:
    """Sends one canary at a time.

    Args:
        guard: Owner of the task.
        name: The task's name.
        send: Sends the request and waits for its end.
        landed: Called with the outcome, when the next one may already start.
    """

    def __init__(
        self,
        guard: Guard,
        name: str,
        send: Callable[[CanaryRequest], Awaitable[CanaryOutcome]],
        landed: Callable[[CanaryOutcome], Awaitable[None]],
    ) -> None:
        self.request: CanaryRequest | None = None
        """What is in flight now."""
        self._guard = guard
        self._name = name
        self._send = send
        self._landed = landed
        self._task: asyncio.Task[None] | None = None

    def start(self, request: CanaryRequest) -> None:
        """Send it, unless one is in flight."""
        if self.request is None:
            self.request = request
            self._task = self._guard.spawn(self._name, lambda: self._fly(request), eternal=False)

    async def _fly(self, request: CanaryRequest) -> None:
        try:
            outcome = await self._send(request)
        finally:
            self.request = None
        await self._landed(outcome)

    async def stop(self) -> None:
        """Cancel what is in flight."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
