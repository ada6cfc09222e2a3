"""Injected time: sleepers wake only when the test advances the clock; the network beneath is real."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time

DEADLINE = 10.0


class VirtualClock:
    """A clock that stands still until `advance`; satisfies the exporter's Clock port."""

    def __init__(self, start: float = 1000.0, unix: float = 1_796_000_000.0) -> None:
        self.now = start
        self.offset = unix - start
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    def monotonic(self) -> float:
        return self.now

    def unix(self) -> float:
        return self.now + self.offset

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._numbers), future))
        await future

    @property
    def sleeping(self) -> int:
        self._sleepers = [entry for entry in self._sleepers if not entry[2].done()]
        heapq.heapify(self._sleepers)
        return len(self._sleepers)

    async def settle(self, sleepers: int = 1) -> None:
        """Wait (in real time) until that many tasks sleep, that is until nobody works any more."""
        deadline = time.monotonic() + DEADLINE
        while self.sleeping < sleepers:
            assert time.monotonic() < deadline, f"{self.sleeping} of {sleepers} tasks sleep"
            await asyncio.sleep(0.001)

    async def advance(self, seconds: float, sleepers: int = 1) -> None:
        """Let that much time pass, waking everybody in turn; `sleepers` tasks must sleep between two wake-ups."""
        until = self.now + seconds
        await self.settle(sleepers)
        while self._sleepers and self._sleepers[0][0] <= until:
            wake, _, future = heapq.heappop(self._sleepers)
            self.now = max(self.now, wake)
            if not future.done():
                future.set_result(None)
                await asyncio.sleep(0)
                await self.settle(sleepers)
        self.now = until


async def until(condition: object, what: str = "the condition") -> None:
    """Poll (in real time) until a callable is true; fails after a deadline."""
    assert callable(condition)
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true"
        await asyncio.sleep(0.002)
