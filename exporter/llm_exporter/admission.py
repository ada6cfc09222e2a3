"""Lets looks begin only as fast as the event loop keeps up, so that an overloaded exporter is late instead of broken.

Without it an overload feeds itself: looks that are all in flight at once time out because nobody reads their answers, their
connections are closed, and new ones cost more than the answers would have. What waits on the network costs nothing here:
a hundred hung servers take no turn away from a healthy one.
"""

from __future__ import annotations

import asyncio
from collections import deque

START, LEAST, MOST = 50.0, 5.0, 60.0
STEP = 5.0
CALM, LATE = 0.1, 0.25


class Admission:
    """Turns for looks. `rate` is how many may begin per tick; a late loop lowers it, a punctual one raises it again."""

    def __init__(self) -> None:
        self.rate = START
        self._left = START
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Wait until a look may begin; in order of arrival."""
        if self._left >= 1 and not self._waiting:
            self._left -= 1
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def tick(self, delay: float) -> None:
        """The loop turned again, `delay` seconds later than it should have; called once per tick."""
        if delay > LATE:
            self.rate = max(LEAST, self.rate * 0.7)
        elif delay < CALM:
            self.rate = min(MOST, self.rate + STEP)
        self._left = self.rate
        while self._waiting and self._left >= 1:
            future = self._waiting.popleft()
            if not future.done():
                self._left -= 1
                future.set_result(None)
