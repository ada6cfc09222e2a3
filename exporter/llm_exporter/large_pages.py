"""Work on pages that are too large for our event loop: in a thread, one at a time, so that only their own targets wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

LARGE = 256 * 1024
"""Characters from which on a page is large; engines write 20 to 150 thousand."""

_worker = ThreadPoolExecutor(1, thread_name_prefix="large-page")


async def off_loop(body: str, work: Callable[[], T]) -> T:
    """The result of `work` on a page; a large page's is done beside the event loop."""
    if len(body) < LARGE:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_worker, work)
