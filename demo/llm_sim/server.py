"""The API process: vLLM's routes, and its life from load to exit."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

from aiohttp import web

from llm_sim import openai_api, processes
from llm_sim.engine_client import EngineClient, EngineDeadError
from llm_sim.http_metrics import CONTENT_TYPE, Page
from llm_sim.settings import Settings

VLLM_VERSION = "0.32.0"
_WATCHDOG_SECONDS = 5.0
"""vLLM looks every 5 s whether its engine is dead (launcher's watchdog loop)."""
_ANSWER_SECONDS = 0.2
"""How long open requests have to receive their 500 before the server ends."""
_MAX_BODY = 64 << 20

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """One server: ``run`` returns when it was told to end or an engine died."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._page = Page(settings)
        self._engines = [EngineClient(settings, rank, metrics) for rank, metrics in enumerate(self._page.engines)]
        self._end = asyncio.Event()
        self._request_saw_death = asyncio.Event()
        self._started = int(time.time())

    async def run(self) -> None:
        """Load, listen, serve until SIGTERM, SIGINT or the death of an engine."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end.set)
        readers = [await engine.start(os.getpid()) for engine in self._engines]
        pids_file = self._settings.pids_file or processes.default_pids_file(self._settings.port)
        processes.write_pids(pids_file, os.getpid(), [engine.pid for engine in self._engines])
        try:
            loading = [engine.wait_ready(reader) for engine, reader in zip(self._engines, readers, strict=True)]
            if await self._unless_ended(asyncio.gather(*loading)):
                await self._serve(readers)
        finally:
            await asyncio.gather(*(engine.stop() for engine in self._engines))
            pids_file.unlink(missing_ok=True)

    async def _serve(self, readers: list[asyncio.StreamReader]) -> None:
        receivers = [
            asyncio.create_task(engine.receive(reader)) for engine, reader in zip(self._engines, readers, strict=True)
        ]
        runner = web.AppRunner(self._application(), handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, self._settings.host, self._settings.port, reuse_address=True)
        await site.start()
        watch = asyncio.create_task(self._watch_engines())
        await self._end.wait()
        await site.stop()
        if self._request_saw_death.is_set():
            await asyncio.sleep(_ANSWER_SECONDS)
        await runner.cleanup()
        for task in (watch, *receivers):
            task.cancel()
        await asyncio.gather(watch, *receivers, return_exceptions=True)

    async def _unless_ended(self, loading: asyncio.Future[list[None]]) -> bool:
        ending = asyncio.ensure_future(self._end.wait())
        both: set[asyncio.Future[Any]] = {loading, ending}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if loading.done():
            loading.result()
            return True
        loading.cancel()
        return False

    async def _watch_engines(self) -> None:
        """A request that meets a dead engine ends the server at once; else the watchdog's next look does."""
        if self._settings.keep_alive_on_engine_death:
            return
        while not self._dead:
            try:
                await asyncio.wait_for(self._request_saw_death.wait(), _WATCHDOG_SECONDS)
            except TimeoutError:
                continue
        self._end.set()

    @property
    def _dead(self) -> bool:
        return any(engine.died.is_set() for engine in self._engines)

    def _application(self) -> web.Application:
        application = web.Application(
            middlewares=[self._count, self._authenticate],
            client_max_size=_MAX_BODY,
        )
        application.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/health", self._health),
                web.get("/ping", self._health),
                web.get("/version", self._version),
                web.get("/debug/pids", self._pids),
                web.get("/v1/models", self._models),
                web.post("/v1/completions", self._completions),
                web.post("/v1/chat/completions", self._chat),
            ]
        )
        return application

    @web.middleware
    async def _count(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        began = time.monotonic()
        status, size = 200, 0  # what is counted for a client that left: its answer had begun
        try:
            response = await handler(request)
            status, size = response.status, response.content_length or 0
        except web.HTTPException as refusal:
            status = refusal.status
            raise
        else:
            return response
        finally:
            self._page.record_request(request, status, size, time.monotonic() - began)

    @web.middleware
    async def _authenticate(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        key = self._settings.api_key
        if key is not None and request.path.startswith("/v1"):
            given = request.headers.get("Authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {key}".encode()):
                return web.json_response({"error": "Unauthorized"}, status=401)
        return await handler(request)

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._page.render(), headers={"Content-Type": CONTENT_TYPE})

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(status=503 if self._dead else 200)

    async def _version(self, _request: web.Request) -> web.Response:
        return web.json_response({"version": VLLM_VERSION})

    async def _pids(self, _request: web.Request) -> web.Response:
        return web.json_response({"api": os.getpid(), "engines": [engine.pid for engine in self._engines]})

    async def _models(self, _request: web.Request) -> web.Response:
        model = {
            "id": self._settings.model,
            "object": "model",
            "created": self._started,
            "owned_by": "vllm",
            "root": self._settings.model,
            "parent": None,
            "max_model_len": self._settings.max_model_len,
        }
        return web.json_response({"object": "list", "data": [model]})

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, chat=False)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, chat=True)

    async def _generate(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        try:
            asked = openai_api.read(await request.json(), chat, self._settings.model, self._settings.max_model_len)
            engine = self._choose(request.headers.get("X-data-parallel-rank"))
        except LookupError as missing:
            return web.json_response(openai_api.error(str(missing.args[0]), "NotFoundError", 404), status=404)
        except (openai_api.BadRequestError, json.JSONDecodeError) as wrong:
            return web.json_response(openai_api.error(str(wrong), "BadRequestError", 400), status=400)
        try:
            return await (self._stream if asked.stream else self._whole)(request, engine, asked)
        except EngineDeadError as dead:
            self._request_saw_death.set()
            return web.json_response(openai_api.error(str(dead), "InternalServerError", 500), status=500)

    def _choose(self, header: str | None) -> EngineClient:
        """The engine that the header names; without one, or with one engine only, the least loaded."""
        if header is None or len(self._engines) == 1:
            return min(self._engines, key=lambda engine: engine.load)
        if not header.isdecimal() or int(header) >= len(self._engines):
            raise openai_api.BadRequestError(f"data_parallel_rank {header} is out of range [0, {len(self._engines)}).")
        return self._engines[int(header)]

    async def _whole(self, _request: web.Request, engine: EngineClient, asked: openai_api.Asked) -> web.StreamResponse:
        generated = 0
        async with aclosing(engine.generate(asked.prompt_tokens, asked.max_tokens, asked.finish_reason)) as pieces:
            async for _ in pieces:
                generated += 1
        return web.json_response(openai_api.whole_answer(asked, generated))

    async def _stream(self, request: web.Request, engine: EngineClient, asked: openai_api.Asked) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        generated = 0
        try:
            async with aclosing(engine.generate(asked.prompt_tokens, asked.max_tokens, asked.finish_reason)) as pieces:
                async for piece in pieces:
                    generated += 1
                    await response.write(openai_api.chunk(asked, piece or None))
        except EngineDeadError as dead:
            self._request_saw_death.set()
            await response.write(openai_api.event(openai_api.error(str(dead), "InternalServerError", 500)))
        else:
            if asked.include_usage:
                await response.write(openai_api.usage_chunk(asked, generated))
        await response.write(openai_api.DONE)
        await response.write_eof()
        return response
