"""Answers of the web server: JSON with a sentence for every refusal, and the headers that browsers need."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from llm_remediator.service import NotPossibleError, StoreError, UnknownTargetError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every refusal as JSON with a sentence; aiohttp logs what nobody foresaw and answers 500."""
    try:
        return await handler(request)
    except UnknownTargetError as exc:
        return refused(404, f"no target {str(exc)[:200]!r} in remediator.yml")
    except NotPossibleError as exc:
        return refused(409, str(exc))
    except StoreError as exc:
        return refused(503, f"cannot store: {exc}")
    except web.HTTPException as exc:
        return refused(exc.status, exc.text or exc.reason, exc.headers)


async def secure(request: web.Request, response: web.StreamResponse) -> None:
    """Signal before every answer: no framing, no scripts, no foreign forms, nothing kept."""
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "same-origin"
    response.headers["X-Frame-Options"] = "DENY"
    response.headers["Content-Security-Policy"] = (
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )


def as_json(body: Any, status: int = 200) -> web.Response:
    """A JSON answer."""
    text = json.dumps(_finite(body), default=str, ensure_ascii=False)
    return web.Response(status=status, text=text + "\n", content_type="application/json")


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def refused(status: int, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """`{"error": …}` with a sentence."""
    response = as_json({"error": text}, status)
    for key in ("Allow", "WWW-Authenticate"):
        if headers and key in headers:
            response.headers[key] = headers[key]
    return response


def as_html(text: str) -> web.Response:
    """A page."""
    return web.Response(text=text, content_type="text/html")


def verdict_of(verdict: tuple[bool, str]) -> web.Response:
    """A health answer: 200 or 503, and why."""
    fine, text = verdict
    return as_json({"ok": fine, "text": text}, 200 if fine else 503)
