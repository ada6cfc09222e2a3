"""JSON over HTTP to a service of the configuration: bounded in time and size, no redirects, no proxies of the
environment, secrets and certificates read when they are used.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from llm_common.secrets import read_secret
from llm_remediator.config import Endpoint
from llm_remediator.foreign_json import UNREADABLE, loads, why
from llm_remediator.outcome import Outcome, Status, failed

T = TypeVar("T")

_BODY_LIMIT = 16 * 1024 * 1024
_CONNECT_TIMEOUT = 5.0


class JsonClient:
    """Requests to one endpoint. Open it within a running loop; `close` when done.

    `secret_path`: only scheme and host are ever shown, for the path is the password (incoming webhooks).
    """

    def __init__(self, endpoint: Endpoint, *, secret_path: bool = False) -> None:
        self.endpoint = endpoint
        self._shown = origin_of(endpoint.url) if secret_path else endpoint.url
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | None = None
        self._tls_stamp: tuple[float, ...] = ()

    async def call(
        self,
        method: str,
        path: str,
        *,
        timeout: float,
        params: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> Outcome[Any]:
        """One request; its JSON answer if the status is 2xx (None if the body is empty).

        `path` is already percent-encoded. A POST that got no answer is `TIMED_OUT`: it may have been done.
        """
        began = time.monotonic()
        where = f"{method} {self._shown}{path}"
        try:
            async with asyncio.timeout(timeout):
                status, data = await self._send(method, path, params, body)
        except aiohttp.ConnectionTimeoutError:
            return failed(Status.UNAVAILABLE, f"{where}: no connection within {_CONNECT_TIMEOUT:g} s", _CONNECT_TIMEOUT)
        except TimeoutError:
            return failed(Status.TIMED_OUT, f"{where}: no answer within {timeout:g} s", timeout)
        except ValueError as exc:
            return failed(Status.REFUSED, f"{where}: {exc}", time.monotonic() - began)
        except (aiohttp.ClientError, OSError) as exc:
            never = isinstance(exc, aiohttp.ClientConnectorError | OSError) or method == "GET"
            kind = Status.UNAVAILABLE if never else Status.TIMED_OUT
            return failed(kind, f"{where}: {_cause(exc)}", time.monotonic() - began)
        seconds = time.monotonic() - began
        if not 200 <= status < 300:
            kind = Status.NOT_FOUND if status == 404 else Status.REFUSED
            if status < 400:
                return failed(kind, f"{where}: {status}, it redirects; give the address that it leads to", seconds)
            return failed(kind, f"{where}: {status} {_words(status, data)}", seconds)
        try:
            value = loads(data) if data.strip() else None
        except ValueError:
            # An incoming webhook may say "ok"; who wants JSON checks the type.
            value = data.decode("utf-8", "replace")
        return Outcome(Status.OK, value, seconds=seconds)

    async def _send(self, method: str, path: str, params: Mapping[str, str] | None, body: Any) -> tuple[int, bytes]:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT)
            self._session = aiohttp.ClientSession(
                timeout=timeout, connector=aiohttp.TCPConnector(force_close=True), trust_env=False
            )
        url = URL(self.endpoint.url + path, encoded=True)
        async with self._session.request(
            method,
            url.update_query(params) if params else url,
            # A POST says application/json even when it has nothing to say: that is what CSRF checks look for.
            json={} if body is None and method == "POST" else body,
            headers=self._headers(),
            ssl=self._context() or True,
            allow_redirects=False,
        ) as answer:
            data = bytearray()
            async for chunk in answer.content.iter_chunked(65536):
                data += chunk
                if len(data) > _BODY_LIMIT:
                    raise ValueError(f"the answer is larger than {_BODY_LIMIT} bytes")
            return answer.status, bytes(data)

    def _headers(self) -> dict[str, str]:
        if self.endpoint.bearer_token_file is not None:
            return {"Authorization": f"Bearer {read_secret(self.endpoint.bearer_token_file)}"}
        if self.endpoint.username is not None and self.endpoint.password_file is not None:
            pair = f"{self.endpoint.username}:{read_secret(self.endpoint.password_file)}"
            return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        return {}

    def _context(self) -> ssl.SSLContext | None:
        end = self.endpoint
        files = [f for f in (end.ca_file, end.cert_file, end.key_file) if f is not None]
        if not files:
            return None
        stamp = tuple(Path(f).stat().st_mtime for f in files)
        if self._tls is None or stamp != self._tls_stamp:
            context = ssl.create_default_context(cafile=end.ca_file)
            if end.cert_file is not None:
                context.load_cert_chain(end.cert_file, end.key_file)
            self._tls, self._tls_stamp = context, stamp
        return self._tls

    async def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def checked(outcome: Outcome[Any], who: str, read: Callable[[Any], T]) -> Outcome[T]:
    """The answer read by `read`; what it cannot read is `REFUSED`: an address of something else, or of another release."""
    if not outcome.ok:
        return outcome
    value: Any = outcome.value
    try:
        return Outcome(Status.OK, read(value), seconds=outcome.seconds)
    except UNREADABLE as exc:
        text = f"what answers is no {who} ({why(exc)}); is the address right?"
        return failed(Status.REFUSED, text, outcome.seconds)


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL whose path is a secret."""
    return str(URL(url).origin()) + "/…"


def _cause(exc: BaseException) -> str:
    system = getattr(exc, "os_error", exc)
    if isinstance(system, ConnectionRefusedError):
        return "connection refused"
    if isinstance(exc, aiohttp.ClientResponseError):
        # Its own text quotes the whole answer, and its URL.
        return f"what answers does not speak HTTP: {exc.message or type(exc).__name__}".partition("\n")[0].rstrip(":")
    return str(exc) or type(exc).__name__


def _words(status: int, data: bytes) -> str:
    try:
        answer = loads(data)
        text = str(answer.get("error") or answer.get("message") or answer) if isinstance(answer, dict) else ""
    except ValueError:
        text = ""
    text = (text or data[:200].decode("utf-8", "replace")).strip()[:300]
    if status in (401, 403):
        return f"{text}; check its bearer_token_file or username and password_file"
    return text
