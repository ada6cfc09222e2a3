"""Event-loop lag and probe endpoints from inside the serving process.

`Middleware` for ASGI servers (vLLM, FastAPI, Starlette), `llm_heartbeat.aiohttp_app.setup(app)` for aiohttp, `running()` for
anything on asyncio. `get()` is the heartbeat of this process.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from llm_heartbeat.asgi import Middleware
from llm_heartbeat.heartbeat import Heartbeat, get
from llm_heartbeat.settings import Settings

__version__ = "0.1.0"

__all__ = ["Heartbeat", "Middleware", "Settings", "get", "running"]


@asynccontextmanager
async def running(heartbeat: Heartbeat | None = None) -> AsyncIterator[Heartbeat]:
    """`async with llm_heartbeat.running() as heartbeat:` around a program that serves by other means.

    Loaded at the loop's next turn, unless the application has begun to report its loading itself.
    """
    own = get() if heartbeat is None else heartbeat
    own.start()
    asyncio.get_running_loop().call_soon(own.serving)
    try:
        yield own
    finally:
        own.drain("shutting down")
        own.stop()
