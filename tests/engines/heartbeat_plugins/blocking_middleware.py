"""Blocks the API server's event loop when told to: `vllm serve … --middleware blocking_middleware.Block`."""

import time
from typing import Any


class Block:
    """`GET /block` sleeps in the loop for three seconds."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/block":
            time.sleep(3)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"blocked"})
            return
        await self.app(scope, receive, send)
