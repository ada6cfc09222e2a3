"""A small HTTP server that publishes vLLM's series; its values are the test's, the HTTP is real."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.test_utils import TestServer


@dataclass
class Engine:
    """What the page says, and what was asked."""

    running: float = 0
    waiting: float = 0
    steps: float = 0
    tokens: float = 0
    kv: float = 0.0
    started: float = 1_795_990_000.0
    lanes: tuple[str, ...] = ("0",)
    model: str = "m"
    page: str | None = None
    status: int = 200
    health: int = 200
    canary_status: int = 200
    canary_hangs: bool = False
    metrics_hang: bool = False
    metrics_seconds: float = 0.0
    asked: Counter[str] = field(default_factory=Counter)
    canary_headers: list[Mapping[str, str]] = field(default_factory=list)
    canary_bodies: list[object] = field(default_factory=list)
    cancelled: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    base: str = ""

    def work(self, steps: float = 10) -> None:
        """The engine makes steps."""
        self.steps += steps
        self.tokens += steps * max(1.0, self.running)
        self.kv = 0.1 + (self.kv + 0.01) % 0.8

    def text(self) -> str:
        if self.page is not None:
            return self.page
        lines = [f"process_start_time_seconds {self.started}"]
        for lane in self.lanes:
            label = f'{{engine="{lane}",model_name="m"}}'
            lines += [
                f"vllm:num_requests_running{label} {self.running}",
                f"vllm:num_requests_waiting{label} {self.waiting}",
                f"vllm:iteration_tokens_total_count{label} {self.steps}",
                f"vllm:generation_tokens_total{label} {self.tokens}",
                f"vllm:prompt_tokens_total{label} {self.tokens / 2}",
                f"vllm:kv_cache_usage_perc{label} {self.kv}",
                f"vllm:num_preemptions_total{label} 0",
                f"vllm:request_success_total{label} 1",
            ]
            lines += [
                f'vllm:time_to_first_token_seconds_bucket{{engine="{lane}",le="{le}"}} 3' for le in ("1.0", "10.0", "+Inf")
            ]
        return "\n".join(lines) + "\n"


@asynccontextmanager
async def serving(engine: Engine) -> AsyncIterator[Engine]:
    """Serve the engine's page; `engine.base` is its URL."""
    stop = asyncio.Event()

    @web.middleware
    async def counted(request: web.Request, handler: object) -> web.StreamResponse:
        engine.asked[request.path] += 1
        is_canary = request.headers.get("User-Agent", "").startswith("stuckproof-canary")
        engine.in_flight += not is_canary
        engine.most_in_flight = max(engine.most_in_flight, engine.in_flight)
        try:
            return await handler(request)  # type: ignore[operator,no-any-return]
        finally:
            engine.in_flight -= not is_canary

    async def metrics(request: web.Request) -> web.Response:
        if engine.metrics_hang:
            await stop.wait()
        await asyncio.sleep(engine.metrics_seconds)
        return web.Response(status=engine.status, text=engine.text(), content_type="text/plain")

    async def health(request: web.Request) -> web.Response:
        return web.Response(status=engine.health)

    async def version(request: web.Request) -> web.Response:
        return web.json_response({"version": "0.32.0"})

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": engine.model}]})

    async def completions(request: web.Request) -> web.Response:
        engine.canary_headers.append(request.headers)
        engine.canary_bodies.append(await request.json())
        try:
            if engine.canary_hangs:
                await stop.wait()
        except asyncio.CancelledError:
            engine.cancelled += 1
            raise
        if engine.canary_status != 200:
            return web.json_response({"error": "no"}, status=engine.canary_status)
        return web.json_response({"choices": [{"text": "x"}]})

    app = web.Application(middlewares=[counted])
    app.add_routes(
        [
            web.get("/metrics", metrics),
            web.get("/health", health),
            web.get("/version", version),
            web.get("/v1/models", models),
            web.post("/v1/completions", completions),
        ]
    )
    server = TestServer(app)
    # TestServer cancels the handler of a client that left, as uvicorn does: so a cancelled canary is seen.
    await server.start_server()
    engine.base = str(server.make_url("")).rstrip("/")
    try:
        yield engine
    finally:
        stop.set()
        await server.close()
