"""How late the exporter's own event loop runs."""

from __future__ import annotations

from collections import deque

from llm_exporter.admission import Admission
from llm_exporter.clock import Clock


class LoopLag:
    """How late this process's own event loop runs: a late loop must not be mistaken for a slow server.

    `admission` lets looks begin as fast as the loop keeps up.
    """

    def __init__(self, clock: Clock, tick: float = 0.1, window: float = 30.0) -> None:
        self.admission = Admission()
        self._clock = clock
        self._tick = tick
        self._window = window
        self._delays: deque[tuple[float, float]] = deque()
        self.turned_at = clock.monotonic()

    async def run(self) -> None:
        """Measure for ever."""
        while True:
            due = self._clock.monotonic() + self._tick
            await self._clock.sleep(self._tick)
            self.turned_at = self._clock.monotonic()
            self.note(self.turned_at, self.turned_at - due)
            self.admission.tick(self.turned_at - due)

    def note(self, t: float, delay: float) -> None:
        """Remember a delay that ended at `t`."""
        while self._delays and self._delays[0][0] < t - self._window:
            self._delays.popleft()
        # Only a delay that no later one exceeds can ever be the largest again.
        while self._delays and self._delays[-1][1] <= delay:
            self._delays.pop()
        self._delays.append((t, max(0.0, delay)))

    def since(self, t: float) -> float:
        """The largest delay that ended at `t` or later, in seconds; a block in progress counts."""
        now = self._clock.monotonic()
        blocked = max(0.0, now - self.turned_at - self._tick)
        return max(blocked, *(delay for end, delay in self._delays if end >= t), 0.0)

    @property
    def worst(self) -> float:
        """The largest delay of the window."""
        return self.since(self._clock.monotonic() - self._window)
