"""`llm_heartbeat.aiohttp_app.setup(app)`: the endpoints in an `aiohttp.web` application. Imported only on demand."""

from collections.abc import AsyncIterator

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from llm_heartbeat.heartbeat import Heartbeat, get


def setup(app: web.Application, heartbeat: Heartbeat | None = None) -> Heartbeat:
    """Add routes, a request counter and the heartbeat's life; call it after the application's own start-up hooks."""
    own = get() if heartbeat is None else heartbeat

    async def answer(request: web.Request) -> web.Response:
        endpoint = request.match_info["endpoint"]
        code, content_type, body = own.respond(
            lambda: own.report(endpoint, from_loop=True), request.query_string, own.settings.details
        )
        headers = {"Content-Type": content_type, "Cache-Control": "no-store"}
        return web.Response(status=code, body=body, headers=headers)

    async def running(_: web.Application) -> AsyncIterator[None]:
        own.start()
        own.serving()
        yield
        own.stop()

    async def draining(_: web.Application) -> None:
        own.drain("shutting down")

    app.router.add_get(own.settings.prefix.rstrip("/") + "/{endpoint:startup|live|ready}", answer)  # HEAD too
    app.middlewares.append(_counter(own))
    app.cleanup_ctx.append(running)
    app.on_shutdown.append(draining)
    return own


def _counter(own: Heartbeat) -> Middleware:
    @web.middleware
    async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
        own.requests.count += 1
        try:
            return await handler(request)
        finally:
            own.requests.count -= 1

    return count
