"""Applications that misbehave on request; run by the tests in processes of their own."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

import llm_heartbeat

CHUNKS = [bytes([65 + n % 26]) * 1000 for n in range(30)]


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    print("lifespan begins", flush=True)
    if os.environ.get("APP_LOAD") == "fails-in-lifespan":
        raise MemoryError("CUDA out of memory")
    if os.environ.get("APP_LOAD") == "in-background":
        heartbeat = llm_heartbeat.get()
        heartbeat.loading("loading weights")
        load = asyncio.create_task(_load(heartbeat))
    yield
    if os.environ.get("APP_LOAD") == "in-background":
        await load
    print("lifespan ends", flush=True)


async def _load(heartbeat: llm_heartbeat.Heartbeat) -> None:
    gate = os.environ["APP_GATE"]
    while not os.path.exists(gate):
        await asyncio.sleep(0.02)
    heartbeat.load_failed("weights/model-00001.safetensors is truncated")


def make(with_heartbeat: bool) -> FastAPI:
    app = FastAPI(lifespan=lifespan)

    @app.get("/")
    async def root() -> dict[str, int]:
        return {"pid": os.getpid()}

    @app.get("/block")
    async def block(gate: str) -> dict[str, int]:
        while not os.path.exists(gate):
            time.sleep(0.02)
        return {"pid": os.getpid()}

    @app.get("/gil")
    async def gil(length: int) -> str:
        """A regular expression that backtracks: one C call that never lets go of the GIL."""
        return str(re.match(r"(a+)+$", "a" * length + "b"))

    @app.get("/stream")
    async def stream(pause: float = 0.0, chunks: int = len(CHUNKS)) -> StreamingResponse:
        async def body() -> AsyncIterator[bytes]:
            for n in range(chunks):
                yield CHUNKS[n % len(CHUNKS)]
                await asyncio.sleep(pause)

        return StreamingResponse(body(), media_type="text/event-stream", headers={"X-Engine": "tiny"})

    if with_heartbeat:
        heartbeat = llm_heartbeat.get()
        app.add_middleware(llm_heartbeat.Middleware)

        @app.get("/drain", include_in_schema=False)
        async def drain() -> None:
            heartbeat.drain("asked to")

        @app.get("/undrain", include_in_schema=False)
        async def undrain() -> None:
            heartbeat.drain_reason = ""

        @app.get("/loaded", include_in_schema=False)
        async def loaded() -> None:
            heartbeat.loaded()

    return app


app = make(with_heartbeat=True)
plain = make(with_heartbeat=False)
