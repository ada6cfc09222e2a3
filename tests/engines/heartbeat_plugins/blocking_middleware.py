"""Middleware for tests: blocks the API server's event loop when told to, and records what passes before and behind ours."""

import time
from typing import Any

_seen: dict[str, list[dict[str, Any]]] = {"inside": [], "outside": []}


class Block:
    """`GET /block?3` sleeps in the loop for three seconds."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/block":
            time.sleep(float(scope["query_string"]))
            await _answer(send, b"blocked")
            return
        await self.app(scope, receive, send)


class Inside:
    """Records every message that the application sends, before the heartbeat's middleware sees it."""

    side = "inside"

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def recorded(message: Any) -> None:
            _seen[self.side].append(message)
            await send(message)

        record = scope["type"] == "http" and scope["path"].startswith("/v1/")
        await self.app(scope, receive, recorded if record else send)


class Outside(Inside):
    """Records what leaves ours; `GET /seen` says how many messages there were, and whether all are the same."""

    side = "outside"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/seen":
            inside, outside = _seen["inside"], _seen["outside"]
            same = len(inside) == len(outside) and all(a is b for a, b in zip(inside, outside, strict=False))
            await _answer(send, f"{len(outside)} {same}".encode())
            return
        await super().__call__(scope, receive, send)


async def _answer(send: Any, body: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
