"""The real clock."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """`ports.Clock`. Its monotonic time goes on while the machine is suspended, as wall time does."""

    def wall(self) -> float:
        """Unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since boot."""
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
