"""The real parts that a monitor needs, on one injected clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from exporter.virtual_time import VirtualClock
from llm_common.guard import Guard
from llm_exporter.scrape import Scraper


@asynccontextmanager
async def parts() -> AsyncIterator[tuple[VirtualClock, Scraper, Guard]]:
    """Clock, client and guard; at the end no task died, and none is left."""
    clock, scraper, guard = VirtualClock(), Scraper(), Guard()
    yield clock, scraper, guard
    await guard.stop()
    await scraper.close()
    assert guard.healthy
    assert asyncio.all_tasks() == {asyncio.current_task()}
