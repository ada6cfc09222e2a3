"""Plain ASGI middleware: `app.add_middleware(llm_heartbeat.Middleware)`, or vLLM's `--middleware llm_heartbeat.Middleware`.

Answers the three endpoints and leaves everything else as it is, byte for byte. It is outside authentication where it is
added last, as in vLLM.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from llm_heartbeat.heartbeat import Heartbeat, get
from llm_heartbeat.report import TEXT_TYPE

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Middleware:
    """Needs no arguments: the environment configures it. Starts with the lifespan, else with the first request."""

    def __init__(self, app: App, heartbeat: Heartbeat | None = None) -> None:
        self.app = app
        self.heartbeat = get() if heartbeat is None else heartbeat
        self._endpoints = self.heartbeat.settings.endpoints
        self._requests = self.heartbeat.requests
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI's entry."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._lifespan(scope, receive, send)
            else:
                await self.app(scope, receive, send)
            return
        if not self._started:
            self._start_late()
        path = scope["path"]
        endpoint = self._endpoints.get(path) or self._under_root(path, scope)
        if endpoint is not None:
            await self._answer(endpoint, scope, send)
            return
        with self._requests:
            await self.app(scope, receive, send)

    def _under_root(self, path: str, scope: Scope) -> str | None:
        root = scope.get("root_path")
        return self._endpoints.get(path.removeprefix(root)) if root and path.startswith(root) else None

    async def _answer(self, endpoint: str, scope: Scope, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            await _respond(send, 405, TEXT_TYPE, b"use GET or HEAD\n", True)
            return
        query = scope.get("query_string", b"").decode("latin-1")
        await _respond(send, *self.heartbeat.answers.main_port(endpoint, query), scope["method"] == "GET")

    def _start_late(self) -> None:
        """No lifespan came (`lifespan="off"`): the server accepts requests, hence the application is there."""
        self._started = True
        self.heartbeat.start()
        self.heartbeat.serving()

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._started = True
        self.heartbeat.start()
        said = False

        async def watched_send(message: Message) -> None:
            nonlocal said
            said = True
            if message["type"] == "lifespan.startup.complete":
                self.heartbeat.serving()
            elif message["type"] == "lifespan.startup.failed":
                lines = str(message.get("message") or "the application's start failed").splitlines()
                self.heartbeat.load_failed(lines[-1])  # Starlette sends the whole traceback, which the server logs
            await send(message)

        async def watched_receive() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                self.heartbeat.drain("shutting down")
            return message

        try:
            await self.app(scope, watched_receive, watched_send)
        except BaseException:
            self._started = said  # an application without lifespan raises at once, and then serves
            raise
        finally:
            if said:
                self.heartbeat.stop()


async def _respond(send: Send, code: int, content_type: str, body: bytes, with_body: bool) -> None:
    headers = [
        (b"content-type", content_type.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    if code == 405:
        headers.append((b"allow", b"GET, HEAD"))
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": body if with_body else b""})
