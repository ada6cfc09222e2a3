"""`llm_heartbeat.aiohttp_app.setup(app)`: the endpoints in an `aiohttp.web` application. Imported only on demand."""

from collections.abc import AsyncIterator

from aiohttp import web
from aiohttp.typedefs import Handler

from llm_heartbeat.heartbeat import Heartbeat, get


def setup(app: web.Application, heartbeat: Heartbeat | None = None) -> Heartbeat:
    """Add the endpoints, a request counter and the heartbeat's life; call it after the application's own start-up hooks.

    The endpoints are answered before the other middlewares run, since probes have no credentials.
    """
    own = get() if heartbeat is None else heartbeat

    @web.middleware
    async def outermost(request: web.Request, handler: Handler) -> web.StreamResponse:
        endpoint = own.settings.endpoints.get(request.path)
        if endpoint is None:
            with own.requests:
                return await handler(request)
        if request.method not in ("GET", "HEAD"):
            return web.Response(
                status=405, text="use GET or HEAD\n", headers={"Allow": "GET, HEAD", "Cache-Control": "no-store"}
            )
        code, content_type, body = own.answers.main_port(endpoint, request.query_string)
        return web.Response(status=code, body=body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    async def running(_: web.Application) -> AsyncIterator[None]:
        own.start()
        own.serving()
        yield
        own.stop()

    async def draining(_: web.Application) -> None:
        own.drain("shutting down")

    app.middlewares.insert(0, outermost)
    app.cleanup_ctx.append(running)
    app.on_shutdown.append(draining)
    return own
