"""Everything the exporter answers over HTTP."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from html import escape
from itertools import islice
from typing import Any

import yaml
from aiohttp import web

from llm_common.errors import ConfigError
from llm_common.guard import Guard
from llm_exporter import __version__, api, collector, pages
from llm_exporter.clock import Clock
from llm_exporter.collector import Own
from llm_exporter.config import Config
from llm_exporter.fleet import Fleet
from llm_exporter.loop_lag import LoopLag
from llm_exporter.monitor import Monitor
from llm_exporter.reload_state import ReloadState
from llm_exporter.snapshot import Snapshot

LOOP_DEAD_AFTER = 10.0
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class Web:
    """The HTTP side of one exporter.

    Args:
        fleet: The watched targets.
        guard: Owner of the background tasks; a death there is a red ``/-/healthy``.
        lag: Delays of our own event loop.
        clock: Time.
        state: What is known of the configuration and its last reload.
        reload: Reads the configuration anew, or None if the lifecycle endpoints are off.
        external_url: Prefix of the links on the pages, without trailing slash.
    """

    def __init__(
        self, fleet: Fleet, guard: Guard, lag: LoopLag, clock: Clock, state: ReloadState,
        reload: Callable[[], Awaitable[None]] | None = None, external_url: str = "",
    ) -> None:  # fmt: skip
        self._fleet = fleet
        self._guard = guard
        self._lag = lag
        self._clock = clock
        self._state = state
        self._reload = reload
        self._external_url = external_url.rstrip("/")
        self._external = escape(self._external_url)

    def app(self) -> web.Application:
        """The application with all its routes."""
        app = web.Application(client_max_size=64 * 1024)
        app.add_routes(
            [
                web.get("/", self._index),
                web.get("/metrics", self._metrics),
                web.get("/config", self._config),
                web.get("/targets/{name}", self._page),
                web.get("/targets/{name}/raw", self._raw),
                web.get("/targets/{name}/{probe:live|ready|startup}", self._probe),
                web.get("/api/v1/targets", self._list),
                web.get("/api/v1/targets/{name}", self._one),
                web.post("/api/v1/targets/{name}/proof", self._proof),
                web.get("/-/healthy", self._healthy),
                web.get("/-/ready", self._ready),
                web.post("/-/reload", self._reload_now),
            ]
        )
        return app

    def _monitor(self, request: web.Request) -> Monitor:
        monitor = self._fleet.monitor(request.match_info["name"])
        if monitor is None:
            raise self._unknown(request)
        return monitor

    def _snapshot(self, request: web.Request) -> Snapshot:
        snapshot = self._fleet.snapshot(request.match_info["name"])
        if snapshot is None:
            raise self._unknown(request)
        return snapshot

    def _unknown(self, request: web.Request) -> web.HTTPNotFound:
        known = ", ".join(islice((snapshot.name for snapshot in self._fleet.snapshots()), 20))
        error = f"no target {request.match_info['name']!r} is watched here; known: {known or 'none'}"
        return web.HTTPNotFound(text=api.dumps({"error": error}), content_type="application/json")

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        kind = collector.content_type(request.headers.get("Accept", ""))
        response = web.StreamResponse(headers={"Content-Type": kind})
        gzip = "gzip" in request.headers.get("Accept-Encoding", "")
        squeeze = zlib.compressobj(level=1, wbits=31) if gzip else None
        if gzip:
            response.headers["Content-Encoding"] = "gzip"
        # A scraper that gives up in the middle knows it, and nobody else reads this answer.
        with suppress(ConnectionResetError):
            await response.prepare(request)
            async for piece in collector.render(await self._fleet.lines(), self._own(), kind):
                data = piece.encode() if squeeze is None else squeeze.compress(piece.encode())
                if data:
                    await response.write(data)
            if squeeze is not None:
                await response.write(squeeze.flush())
            await response.write_eof()
        return response

    def _own(self) -> list[Own]:
        state = self._state
        samples = [
            Own("llm_exporter_build_info", 1, (("version", __version__), ("external_url", self._external_url))),
            Own("llm_exporter_config_last_reload_successful", state.successful),
            Own("llm_exporter_config_last_reload_success_timestamp_seconds", state.succeeded_at),
            Own("llm_exporter_config_hash_info", 1, (("hash", state.hash),)),
            Own("llm_exporter_targets", len(self._fleet)),
            Own("llm_exporter_loop_lag_seconds", self._lag.worst),
            Own("llm_exporter_late_observations_total", self._fleet.late),
            Own("llm_exporter_fail_open", self._fleet.fail_open),
        ]
        deaths = {"monitor": 0, **self._guard.deaths}
        samples += [Own("llm_exporter_task_deaths_total", count, (("task", task),)) for task, count in deaths.items()]
        samples += [Own("llm_exporter_discovery_up", up, (("source", source),)) for source, up in state.discovery_up.items()]
        return samples

    async def _list(self, request: web.Request) -> web.Response:
        # Snapshots never change, so that a thread may read them while the loop turns.
        return _json_text(await asyncio.to_thread(_listed, list(self._fleet.snapshots())))

    async def _one(self, request: web.Request) -> web.Response:
        return _json(api.target_in_full(self._snapshot(request)))

    async def _proof(self, request: web.Request) -> web.Response:
        return _json(api.proof(await self._monitor(request).prove()))

    async def _probe(self, request: web.Request) -> web.Response:
        snapshot = self._snapshot(request)
        which = request.match_info["probe"]
        open_ = which == "live" and not snapshot.checks.live and self._fleet.fail_open
        passes, body = api.probe(snapshot, which, fail_open=open_)
        return _json(body, 200 if passes else 503)

    async def _index(self, request: web.Request) -> web.Response:
        snapshots = list(self._fleet.snapshots())
        return _html(
            await asyncio.to_thread(pages.fleet, snapshots, self._clock.unix(), self._external, hold="hold" in request.query)
        )

    async def _page(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        snapshot = self._fleet.snapshot(name)
        if snapshot is None:
            return _html(pages.not_found(name, self._external), 404)
        return _html(pages.target(snapshot, self._clock.unix(), self._external, hold="hold" in request.query))

    async def _raw(self, request: web.Request) -> web.Response:
        page = await self._monitor(request).raw()
        if page.status is None:
            return web.Response(status=502, text=f"{page.kind}: {page.error}\n", headers=PAGE_HEADERS)
        head = f"# HTTP {page.status}, {page.ctype or 'no content type'}, {page.seconds:.3f} s\n"
        return web.Response(text=head + page.body, headers=PAGE_HEADERS)

    async def _config(self, request: web.Request) -> web.Response:
        return web.Response(text=await asyncio.to_thread(_shown, self._state.config), headers=PAGE_HEADERS)

    async def _healthy(self, request: web.Request) -> web.Response:
        """Our own loop and tasks, nothing else: a sick target must never restart its exporter."""
        late = self._clock.monotonic() - self._lag.turned_at
        if late > LOOP_DEAD_AFTER:
            return web.Response(status=503, text=f"the event loop has not turned for {late:.0f} s\n")
        if not self._guard.healthy:
            return web.Response(status=503, text=f"background tasks died: {', '.join(self._guard.deaths)}\n")
        return web.Response(text="Healthy\n")

    async def _ready(self, request: web.Request) -> web.Response:
        if not self._fleet.looked_at_all:
            return web.Response(status=503, text="the first look at every target is not done yet\n")
        return web.Response(text="Ready\n")

    async def _reload_now(self, request: web.Request) -> web.Response:
        if self._reload is None:
            return web.Response(status=403, text="start with --web.enable-lifecycle to reload over HTTP; SIGHUP works too\n")
        try:
            await self._reload()
        except ConfigError as error:
            return web.Response(status=500, text=f"the old configuration stays:\n{error}\n")
        return web.Response(text="reloaded\n")


def _shown(config: Config) -> str:
    text: str = yaml.dump(config.effective(), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def _listed(snapshots: Sequence[Snapshot]) -> str:
    return api.dumps({"targets": [api.target(snapshot) for snapshot in snapshots]})


def _json(body: object, status: int = 200) -> web.Response:
    return _json_text(api.dumps(body), status)


def _json_text(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, content_type="application/json", headers={"Cache-Control": "no-store"})


def _html(text: str, status: int = 200) -> web.Response:
    # Names that servers give may hold what no encoding has.
    body = text.encode(errors="replace")
    return web.Response(body=body, status=status, content_type="text/html", charset="utf-8", headers=PAGE_HEADERS)
