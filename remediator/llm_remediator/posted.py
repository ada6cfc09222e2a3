"""The body of a request that changes something: a form of our page or JSON, checked before anything is done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from llm_remediator.foreign_json import loads
from llm_remediator.origin import COOKIE, FIELD, BrowserGuard

log = logging.getLogger("llm.remediator.web")
BODY_TIMEOUT = 15.0
FORM = "application/x-www-form-urlencoded"


async def posted(request: web.Request, guard: BrowserGuard, *known: str) -> Mapping[str, str]:
    """The fields of a form or JSON body, after the check that the request is not another site's doing.

    A mistyped field is refused: who asks for `{"duration": "8h"}` must not get an hour.
    """
    form = request.content_type == FORM
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            raw = await request.read()
        fields: Any = dict(await request.post()) if form else loads(raw or b"{}")
    except TimeoutError:
        raise web.HTTPRequestTimeout(text="the body did not arrive in time") from None
    except (ValueError, LookupError):  # of a character set that nobody knows
        raise web.HTTPBadRequest(text=f"the body is not {'a form in UTF-8' if form else 'JSON'}") from None
    if not isinstance(fields, dict) or not all(isinstance(v, str) for v in fields.values()):
        raise web.HTTPBadRequest(text='the body must be an object of texts, e.g. {"for": "1h"}')
    token = fields.pop(FIELD, "") if form else None
    refusal = guard.refusal(request.headers, request.cookies.get(COOKIE, ""), token)
    if refusal:
        log.warning("refused: %s", refusal, extra={"path": request.path, "sender": request.remote})
        raise web.HTTPForbidden(text=refusal)
    for key in fields:
        if key not in known:
            raise web.HTTPBadRequest(text=f"{key[:50]!r} is not known; there is {', '.join(known) or 'nothing to say'}")
    return fields


def sender(request: web.Request, asked: Mapping[str, str]) -> str:
    """Who asks, for the journal: the name that was given, and the address."""
    said = asked.get("by", "").strip()[:100]
    return f"{said} from {request.remote}" if said else f"{request.remote}"
