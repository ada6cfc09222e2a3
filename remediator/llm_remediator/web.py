"""HTTP: Alertmanager's webhook, the API, metrics and health. Decides nothing and acts on nothing itself.

Credentials and TLS are the common web server's (`llm_common.web`), on every path but `/-/healthy` and `/-/ready`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from llm_common.config import format_duration, parse_duration
from llm_remediator import page, webhook
from llm_remediator.metrics import WebhookCounts, registry
from llm_remediator.origin import COOKIE, BrowserGuard
from llm_remediator.posted import BODY_TIMEOUT, FORM, posted, sender
from llm_remediator.responses import as_html, as_json, errors, refused, secure, verdict_of
from llm_remediator.service import Service, StoreError, UnknownTargetError

log = logging.getLogger("llm.remediator.web")
MOST_BODIES = 100
MOST_A_SECOND = 2000
"""Webhooks; twice what the busiest Alertmanager should send. 503, not 429: only that is tried again."""
LONGEST_PAUSE = 30 * 86400.0
DEFAULT_PAUSE = 3600.0


class RemediatorWeb:
    """The handlers, around one `Service`. `shown_config` is what `/config` shows, secrets masked."""

    def __init__(
        self,
        service: Service,
        guard: BrowserGuard,
        shown_config: str = "",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._monotonic = monotonic
        self._guard = guard
        self._shown_config = shown_config
        self._counts = WebhookCounts()
        self._registry: CollectorRegistry = registry(service, self._counts)
        self._bodies = 0
        self._second = self._this_second = 0

    def app(self) -> web.Application:
        """The application; `llm_common.web.serve` runs it."""
        app = web.Application(client_max_size=webhook.BODY_LIMIT, middlewares=[errors])
        # Signals, not middlewares: they see the credentials check's 401 too.
        app.on_response_prepare.append(secure)
        app.on_response_prepare.append(self._count)
        app.add_routes(
            [
                web.post("/api/v1/alerts", self.alerts),
                web.get("/api/v1/decisions", self.decisions),
                web.get("/api/v1/overview", self.overview),
                web.get("/api/v1/targets", self.targets),
                web.get("/api/v1/targets/{name}", self.target),
                web.get("/api/v1/targets/{name}/explain", self.explain),
                web.post("/api/v1/targets/{name}/drill", self.drill),
                web.post("/api/v1/targets/{name}/pause", self.pause),
                web.post("/api/v1/targets/{name}/resume", self.resume),
                web.post("/api/v1/targets/{name}/rearm", self.rearm),
                web.post("/api/v1/targets/{name}/approve", self.approve),
                web.post("/api/v1/pause", self.pause),
                web.post("/api/v1/resume", self.resume),
                web.get("/", self.front),
                web.get("/targets/{name}", self.target_page),
                web.get("/confirm/{action:pause|resume|rearm|approve}", self.confirm),
                web.get("/metrics", self.metrics),
                web.get("/config", self.config),
                web.get("/-/healthy", self.healthy),
                web.get("/-/ready", self.ready),
            ]
        )
        return app

    async def _count(self, request: web.Request, response: web.StreamResponse) -> None:
        if request.path == "/api/v1/alerts" and request.method == "POST":
            self._counts.codes[str(response.status)] += 1

    # --- Alertmanager

    async def alerts(self, request: web.Request) -> web.Response:
        """202 only after the alerts are stored; 503 if they cannot be: nothing else makes it try again."""
        if request.headers.get("Content-Encoding", "identity") != "identity":
            return refused(415, "the body is compressed; Alertmanager sends it as it is")
        if self._bodies >= MOST_BODIES:
            return refused(503, f"{MOST_BODIES} webhooks are being read already")
        second = int(self._monotonic())
        self._this_second = self._this_second + 1 if second == self._second else 1
        self._second = second
        if self._this_second > MOST_A_SECOND:
            return refused(503, f"over {MOST_A_SECOND} webhooks a second")
        self._bodies += 1
        try:
            async with asyncio.timeout(BODY_TIMEOUT):
                body = await request.read()
        except TimeoutError:
            return refused(408, f"the body did not arrive within {BODY_TIMEOUT:g} s")
        except web.HTTPRequestEntityTooLarge:
            return refused(413, f"the body is over {webhook.BODY_LIMIT} bytes; set max_alerts: 50")
        finally:
            self._bodies -= 1
        try:
            delivery = webhook.parse(body, request.remote or "")
        except webhook.BadBodyError as exc:
            log.warning("a webhook was refused: %s", exc, extra={"sender": request.remote})
            return refused(400, str(exc))
        if delivery.truncated:
            self._counts.truncated += delivery.truncated
            log.warning(
                "Alertmanager left out %d alerts (max_alerts); they are read from its API",
                delivery.truncated,
                extra={"sender": request.remote},
            )
        try:
            await self._service.accept(delivery)
        except StoreError as exc:
            log.error("a webhook could not be stored: %s", exc)  # noqa: TRY400 - the sentence says it all
            return refused(503, f"cannot store: {exc}")
        return as_json({"accepted": len(delivery.alerts), "truncated": delivery.truncated}, 202)

    # --- reading

    async def decisions(self, request: web.Request) -> web.Response:
        """`?target=&since=&limit=`, newest first."""
        query = request.query
        try:
            since, limit = float(query.get("since", "0")), int(query.get("limit", "100"))
        except ValueError:
            since, limit = 0.0, 0
        if not 1 <= limit <= 1000 or not math.isfinite(since):
            return refused(400, "since is a Unix time, limit a number from 1 to 1000")
        found = await self._service.decisions(target=query.get("target"), since=since or None, limit=limit)
        return as_json({"decisions": [dataclasses.asdict(d) for d in found]})

    async def overview(self, request: web.Request) -> web.Response:
        """The remediator itself."""
        return as_json(dataclasses.asdict(self._service.overview()))

    async def targets(self, request: web.Request) -> web.Response:
        """All targets."""
        return as_json({"targets": [dataclasses.asdict(t) for t in self._service.targets()]})

    async def target(self, request: web.Request) -> web.Response:
        """One target."""
        name = request.match_info["name"]
        for view in self._service.targets():
            if view.name == name:
                return as_json(dataclasses.asdict(view))
        raise UnknownTargetError(name)

    async def explain(self, request: web.Request) -> web.Response:
        """What would happen if the alert fired now."""
        return as_json(dataclasses.asdict(await self._service.explain(request.match_info["name"])))

    async def metrics(self, request: web.Request) -> web.Response:
        """Prometheus' or OpenMetrics' format, as asked for."""
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})

    async def config(self, request: web.Request) -> web.Response:
        """The configuration in force."""
        return web.Response(text=self._shown_config)

    async def healthy(self, request: web.Request) -> web.Response:
        """503: this process must be restarted."""
        return verdict_of(self._service.healthy())

    async def ready(self, request: web.Request) -> web.Response:
        """503: it cannot decide now."""
        return verdict_of(self._service.ready())

    # --- changing

    async def pause(self, request: web.Request) -> web.Response:
        """Body: `for` (a duration, default 1h, at most 30d), `reason`, `by`."""
        asked = await posted(request, self._guard, "for", "reason", "by")
        name = request.match_info.get("name")
        try:
            seconds = parse_duration(asked.get("for") or format_duration(DEFAULT_PAUSE))
        except ValueError as exc:
            return refused(400, f"for: {exc}")
        if not 0 < seconds <= LONGEST_PAUSE:
            return refused(400, f"for: every pause ends; from 1s to {format_duration(LONGEST_PAUSE)}")
        until = await self._service.pause(
            name, seconds=seconds, reason=asked.get("reason", "")[:500], by=sender(request, asked)
        )
        return self._answer(request, {"target": name, "paused_until": until})

    async def resume(self, request: web.Request) -> web.Response:
        """End a pause."""
        asked = await posted(request, self._guard, "by")
        name = request.match_info.get("name")
        await self._service.resume(name, by=sender(request, asked))
        return self._answer(request, {"target": name, "paused_until": None})

    async def rearm(self, request: web.Request) -> web.Response:
        """Take a latch off."""
        asked = await posted(request, self._guard, "by")
        name = request.match_info["name"]
        await self._service.rearm(name, by=sender(request, asked))
        return self._answer(request, {"target": name, "latched": False})

    async def approve(self, request: web.Request) -> web.Response:
        """Body: `by`, who approves; `request`, the number of the question that is answered, if it must be that one."""
        asked = await posted(request, self._guard, "by", "request")
        name, question = request.match_info["name"], asked.get("request", "")
        if not asked.get("by", "").strip():
            return refused(400, 'by: say who approves it, e.g. {"by": "kim"}')
        if not re.fullmatch("[0-9]{0,15}", question, re.ASCII):
            return refused(400, "request: is the number of a question, as awaiting_approval shows it")
        by = sender(request, asked)
        until = await self._service.approve(name, request=int(question) if question else None, by=by)
        return self._answer(request, {"target": name, "approved_until": until, "approved_by": by})

    async def drill(self, request: web.Request) -> web.Response:
        """The whole path without the restart call."""
        await posted(request, self._guard)
        return as_json(dataclasses.asdict(await self._service.drill(request.match_info["name"])))

    def _answer(self, request: web.Request, body: Mapping[str, Any]) -> web.Response:
        if request.content_type == FORM:
            return web.Response(status=303, headers={"Location": "/"})
        return as_json(body)

    # --- the page

    async def front(self, request: web.Request) -> web.Response:
        """All targets and the last decisions."""
        decisions = await self._service.decisions(limit=30)
        return as_html(page.front(self._service.overview(), self._service.targets(), decisions))

    async def target_page(self, request: web.Request) -> web.Response:
        """One target, gate by gate, with its decisions and their evidence."""
        name = request.match_info["name"]
        explanation = await self._service.explain(name)
        view = next((t for t in self._service.targets() if t.name == name), None)
        if view is None:
            raise UnknownTargetError(name)
        decisions = await self._service.decisions(target=name, limit=50)
        return as_html(page.target(self._service.overview(), view, explanation, decisions))

    async def confirm(self, request: web.Request) -> web.Response:
        """A form that says what the button will do; it works without scripts."""
        action, name = request.match_info["action"], request.query.get("target")
        view = next((t for t in self._service.targets() if t.name == name), None)
        if name is not None and view is None:
            raise UnknownTargetError(name)
        if name is None and action in ("rearm", "approve"):
            return refused(400, f"{'re-arm' if action == 'rearm' else action} one target at a time")
        asked = view if action == "approve" else None
        if asked is not None and not asked.awaiting_approval:
            return refused(409, f"{name}: nothing awaits approval")
        session = request.cookies.get(COOKIE) or self._guard.new_session()
        response = as_html(page.confirm(action, name, self._guard.token(session), asked))
        response.set_cookie(COOKIE, session, httponly=True, samesite="Strict", secure=request.secure, path="/")
        return response
