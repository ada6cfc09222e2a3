"""Serving HTTP as Prometheus' exporters do: repeated listen addresses, web config file with TLS and auth."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from llm_common.errors import ConfigError
from llm_common.listen import parse_listen
from llm_common.secrets import read_secret
from llm_common.web_config import WebConfig, bcrypt

_log = logging.getLogger("llm.web")
_server_log = logging.getLogger("llm.web.server")
OPEN_PATHS = frozenset({"/-/healthy", "/-/ready"})
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Gatekeeper:
    """Checks credentials on every path but the two health paths; follows renewed tokens and certificates."""

    def __init__(self, config: WebConfig, context: ssl.SSLContext | None) -> None:
        self._config = config
        self._context = context
        self._stamps = self._certificate_stamps()
        self._looked_at = time.monotonic()
        self._proven: set[bytes] = set()
        # An unknown user costs as much time as a known one, so that names cannot be found by measuring.
        self._decoy = next(iter(config.basic_auth_users.values()), "")

    def _certificate_stamps(self) -> tuple[float, ...]:
        files = [path for path in (self._config.cert_file, self._config.key_file) if path is not None]
        return tuple(Path(path).stat().st_mtime for path in files)

    def follow_certificate(self) -> None:
        """Load a renewed certificate into the running server, at most one look a second."""
        if self._context is None or self._config.cert_file is None or time.monotonic() - self._looked_at < 1.0:
            return
        self._looked_at = time.monotonic()
        try:
            stamps = self._certificate_stamps()
            if stamps != self._stamps:
                self._context.load_cert_chain(self._config.cert_file, self._config.key_file)
                self._stamps = stamps
        except (OSError, ssl.SSLError) as error:
            _log.error("the renewed certificate cannot be used, the old one stays: %s", error)

    async def admits(self, header: str) -> bool:
        """Whether this Authorization header opens the door."""
        config = self._config
        if not config.basic_auth_users and config.bearer_token_file is None:
            return True
        scheme, _, credentials = header.partition(" ")
        if scheme.lower() == "bearer":
            return self._token_fits(credentials.strip())
        if scheme.lower() == "basic":
            try:
                user, _, password = base64.b64decode(credentials, validate=True).decode().partition(":")
            except ValueError:  # no base64, or no text
                return False
            # A browser cannot send a bearer token: there it is the password, of any user.
            return self._token_fits(password) or await asyncio.to_thread(self._password_fits, user, password)
        return False

    def _token_fits(self, said: str) -> bool:
        if self._config.bearer_token_file is None:
            return False
        try:
            token = read_secret(self._config.bearer_token_file)
        except ValueError as error:
            _log.error("nobody is let in: bearer token %s", error)
            return False
        return hmac.compare_digest(token.encode(), said.encode(errors="surrogateescape"))

    def _password_fits(self, user: str, password: str) -> bool:
        if not self._config.basic_auth_users:
            return False
        known = self._config.basic_auth_users.get(user)
        digest = hashlib.sha256(f"{user}\0{known}\0{password}".encode()).digest()
        if digest in self._proven:
            return True
        try:
            fits = bool(bcrypt().checkpw(password.encode()[:72], (known or self._decoy).encode()))
        except ValueError:
            return False
        if known is None or not fits:
            return False
        if len(self._proven) < 100:
            self._proven.add(digest)
        return True


def _middleware(gatekeeper: _Gatekeeper) -> Any:
    @web.middleware
    async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
        gatekeeper.follow_certificate()
        if request.path in OPEN_PATHS or await gatekeeper.admits(request.headers.get("Authorization", "")):
            return await handler(request)
        refused = web.Response(status=401, text="credentials are missing or wrong\n")
        # One challenge a line: browsers read the first word of each.
        for challenge in ('Basic realm="stuckproof"', "Bearer"):
            refused.headers.add("WWW-Authenticate", challenge)
        return refused

    return authenticate


def _blame_the_sender(record: logging.LogRecord) -> bool:
    """Broken HTTP, a scanner's for one, is a quiet line and no error with a traceback."""
    fault = record.exc_info[1] if record.exc_info else None
    if not isinstance(fault, HttpProcessingError):
        return True
    record.levelno, record.levelname = logging.INFO, "INFO"
    record.msg, record.args, record.exc_info = f"not HTTP: {fault.message.splitlines()[0]}", (), None
    return _log.isEnabledFor(logging.INFO)


async def serve(app: web.Application, listen: Sequence[str], web_config_file: str | None = None) -> web.AppRunner:
    """Serve ``app`` on every address until ``runner.cleanup()``; ``ConfigError`` if an address is taken.

    With a web config file, TLS and authentication apply to every path except ``/-/healthy`` and ``/-/ready``.
    """
    addresses = [parse_listen(address) for address in listen]
    context: ssl.SSLContext | None = None
    if web_config_file is not None:
        config = WebConfig.load(web_config_file)
        context = config.ssl_context()
        app.middlewares.insert(0, _middleware(_Gatekeeper(config, context)))
    # Nobody has a reason to compress what is sent to us; aiohttp answers a broken one with 500 and tracebacks.
    _server_log.addFilter(_blame_the_sender)
    runner = web.AppRunner(
        app, access_log=None, logger=_server_log, handle_signals=False, shutdown_timeout=3.0, auto_decompress=False
    )
    await runner.setup()
    for address, (host, port) in zip(listen, addresses, strict=True):
        try:
            await web.TCPSite(runner, host or None, port, ssl_context=context, reuse_address=True).start()
        except OSError as error:
            await runner.cleanup()
            raise ConfigError(
                f"cannot listen on {address}: {error.strerror or error}; give another --web.listen-address"
            ) from error
    return runner
