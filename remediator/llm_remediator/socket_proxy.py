"""`llm-remediator socket-proxy`: Docker's socket with all its power taken out but what `socket_rules` lists.

The remediator then needs neither root nor the socket. The proxy alone holds it, and reads no configuration.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from llm_common.errors import ConfigError
from llm_common.listen import parse_listen
from llm_remediator.foreign_json import loads
from llm_remediator.socket_rules import PROXY_HEADER, Call, judge, only_forced, without_secrets

log = logging.getLogger("llm.remediator.socket_proxy")
_BODY_LIMIT = 16 * 1024 * 1024
_READ_TIMEOUT = 60.0
_START = 120.0
"""On top of a restart's grace: what the daemon may need for kill and start."""


class SocketProxy:
    """Forwards what `judge` allows. `only_label`: `key` or `key=value` that a container must have to be acted on."""

    def __init__(self, socket: str, *, swarm: bool = False, only_label: str | None = None) -> None:
        self._socket = socket
        self._swarm = swarm
        self._only_label = only_label
        self._session: aiohttp.ClientSession | None = None

    def app(self) -> web.Application:
        """One handler for every path: what is not listed is refused there, not by routing."""
        app = web.Application(client_max_size=1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self.handle)
        app.on_cleanup.append(self._close)
        return app

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Judge, forward, strip secrets."""
        call = judge(request.method, request.raw_path, request.headers, swarm=self._swarm)
        if isinstance(call, str):
            log.warning("refused: %s", call, extra={"sender": request.remote})
            return _says(403, call)
        try:
            return await self._forward(request, call)
        except TimeoutError:
            return _says(504, f"the Docker Engine did not answer {request.method} {call.path} in time")
        except (aiohttp.ClientError, OSError) as exc:
            log.error("the Docker Engine cannot be reached: %s", exc)  # noqa: TRY400 - no trace needed
            return _says(502, f"{self._socket}: {exc or type(exc).__name__}")

    async def _forward(self, request: web.Request, call: Call) -> web.StreamResponse:
        body: bytes | None = None
        if call.rule.acts:
            body = await request.read() if call.rule.swarm else None
            if refusal := await self._may_act(call, body):
                log.warning("refused: %s", refusal, extra={"sender": request.remote})
                return _says(403, refusal)
            log.info("passed on: %s %s", request.method, call.target, extra={"sender": request.remote})
        async with self._ask(request.method, call.target, body, _wait(call)) as answer:
            if answer.status == 200 and call.rule.path.endswith("/json"):
                raw = loads(await _bounded(answer))
                return web.json_response(without_secrets(call, raw), headers=_kept(answer.headers))
            response = web.StreamResponse(status=answer.status, headers=_kept(answer.headers))
            if "Content-Type" in answer.headers:
                response.headers["Content-Type"] = answer.headers["Content-Type"]
            await response.prepare(request)
            try:
                async for chunk in answer.content.iter_chunked(65536):
                    await response.write(chunk)
                await response.write_eof()
            except (TimeoutError, aiohttp.ClientError) as exc:
                # The status is out already; only a cut connection can still say that this is not all.
                log.warning("the answer to %s broke off: %s", call.path, exc or type(exc).__name__)
                if request.transport is not None:
                    request.transport.abort()
            return response

    async def _may_act(self, call: Call, body: bytes | None) -> str:
        """Why not, after a look at what it would hit."""
        kind = "services" if call.rule.swarm else "containers"
        look = f"{call.version}/{kind}/{call.subject}" + ("" if call.rule.swarm else "/json")
        async with self._ask("GET", look, None, _READ_TIMEOUT) as answer:
            if answer.status != 200:
                return f"{call.subject[:12]} cannot be inspected ({answer.status}): not acted on"
            found: dict[str, Any] = loads(await _bounded(answer))
        if call.rule.swarm:
            try:
                wanted = loads(body or b"{}")
            except ValueError:
                return "the service specification is not JSON"
            if not isinstance(wanted, dict) or not only_forced(found.get("Spec") or {}, wanted):
                return "a service may only be updated by force, with nothing in its specification changed"
            labels = (found.get("Spec") or {}).get("Labels") or {}
        else:
            labels = (found.get("Config") or {}).get("Labels") or {}
        if self._only_label is not None and not _labelled(labels, self._only_label):
            return f"{call.subject[:12]} has no label {self._only_label}: not acted on"
        return ""

    def _ask(self, method: str, target: str, body: bytes | None, wait: float) -> aiohttp.client._RequestContextManager:
        if self._session is None:
            connector = aiohttp.UnixConnector(path=self._socket, force_close=True)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        return self._session.request(
            method,
            URL(f"http://docker{target}", encoded=True),
            data=body,
            headers={"Content-Type": "application/json"} if body else {},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=wait),
            allow_redirects=False,
        )

    async def _close(self, _: web.Application) -> None:
        if self._session is not None:
            await self._session.close()


async def run(listen: str, proxy: SocketProxy) -> None:
    """Serve until SIGTERM or SIGINT. `listen`: `HOST:PORT`, or `unix:PATH` (mode 0660)."""
    runner = web.AppRunner(proxy.app(), access_log=None, handle_signals=False, shutdown_timeout=3.0)
    await runner.setup()
    try:
        if listen.startswith("unix:"):
            path = listen.removeprefix("unix:")
            _free(path)
            await web.UnixSite(runner, path).start()
            os.chmod(path, 0o660)
        else:
            host, port = parse_listen(listen)
            await web.TCPSite(runner, host or None, port, reuse_address=True).start()
        log.info("listening", extra={"listen": listen})
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await stop.wait()
    except OSError as exc:
        raise ConfigError(f"--listen {listen}: {exc.strerror or exc}") from exc
    finally:
        await runner.cleanup()


def _free(path: str) -> None:
    """A socket that an earlier run left behind is removed; anything else in that place is not ours."""
    old = Path(path)
    if old.is_socket():
        old.unlink()
    elif old.exists():
        raise ConfigError(f"--listen unix:{path}: there is something that is no socket; choose another path")


def _wait(call: Call) -> float:
    grace = next((float(v) for k, _, v in (p.partition("=") for p in call.query.split("&")) if k == "t"), 0.0)
    return grace + _START if call.rule.acts else _READ_TIMEOUT


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    data = await answer.content.read(_BODY_LIMIT + 1)
    while len(data) <= _BODY_LIMIT and (more := await answer.content.read(_BODY_LIMIT + 1 - len(data))):
        data += more
    if len(data) > _BODY_LIMIT:
        raise aiohttp.ClientPayloadError(f"an answer of over {_BODY_LIMIT} bytes")
    return data


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers of the daemon that its clients read, and a word that it is not the daemon itself that answers."""
    kept = ("Api-Version", "Docker-Experimental", "Ostype", "Server", "Date")
    return {PROXY_HEADER: "1"} | {k: headers[k] for k in kept if k in headers}


def _labelled(labels: Mapping[str, str], wanted: str) -> bool:
    key, equals, value = wanted.partition("=")
    return key in labels and (not equals or labels[key] == value)


def _says(status: int, text: str) -> web.Response:
    return web.json_response({"message": text}, status=status)
