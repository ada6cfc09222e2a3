"""Time as a port: tests inject their own, nothing else asks the system for it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What the shell needs of time."""

    def monotonic(self) -> float:
        """Seconds that never jump."""

    def unix(self) -> float:
        """Seconds since 1970, as the system believes."""

    async def sleep(self, seconds: float) -> None:
        """Let others run for that long."""


class SystemClock:
    """The machine's own time."""

    def monotonic(self) -> float:
        """Seconds that never jump; stands still while the machine is suspended."""
        return time.monotonic()

    def unix(self) -> float:
        """Seconds since 1970."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Let others run for that long."""
        await asyncio.sleep(seconds)
