"""Asks servers over HTTP within limits, and never raises for what a server does: every ending is an answer.

Redirects are not followed: what a target redirects to is not the target. Compression is not asked for: it
costs the server's event loop more than it saves; a server that compresses all the same is read.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from weakref import WeakValueDictionary

import aiohttp
from yarl import URL

from llm_common.secrets import read_secret
from llm_exporter import __version__
from llm_exporter.bodies import BodyError, read_bounded
from llm_exporter.engines.base import Page
from llm_exporter.fetch_errors import classify
from llm_exporter.resolver import EveryAddressResolver

ACCEPT = "text/plain;version=0.0.4;q=0.9,*/*;q=0.1"
USER_AGENT = f"stuckproof/{__version__}"
# Headers of an answer that say something about the server and that a recording keeps.
KEPT_HEADERS = ("Process-Start-Time-Unix", "Location", "Server")


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach one server: base URL without trailing slash, a token file, and TLS trust."""

    base: str
    bearer_token_file: str | None = None
    ca_file: str | None = None
    insecure_skip_verify: bool = False


class Scraper:
    """One HTTP client for all targets.

    At most `per_host` requests run at once against one host name; the wait for a turn is not part of a
    request's timeout, since it says nothing about the server.
    """

    def __init__(self, per_host: int = 32, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._per_host = per_host
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._contexts: dict[tuple[str | None, bool], ssl.SSLContext | bool] = {}
        self._session: aiohttp.ClientSession | None = None

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=0, keepalive_timeout=75, ttl_dns_cache=30, resolver=EveryAddressResolver()
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
                trust_env=False,
            )
        return self._session

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def reconfigure(self, per_host: int) -> None:
        """Take a new bound, and read files of trust anew; requests under way end as they began."""
        self._contexts.clear()
        if per_host != self._per_host:
            self._per_host = per_host
            self._turns.clear()

    def _turn(self, host: str) -> asyncio.Semaphore:
        """The turns of one host, as long as somebody waits for one: hosts come and go."""
        turn = self._turns.get(host)
        if turn is None:
            turn = self._turns[host] = asyncio.Semaphore(self._per_host)
        return turn

    async def request(
        self,
        method: str,
        access: Access,
        path: str,
        timeout: float,
        *,
        headers: Mapping[str, str] | None = None,
        json: object = None,
        token_file: str | None = None,
        connect_timeout: float | None = None,
    ) -> Page:
        """One request; every ending but cancellation is a `Page`.

        Args:
            method: HTTP method.
            access: The server.
            path: Path and query below the base URL.
            timeout: Seconds until the whole body must be there.
            headers: More request headers.
            json: A body to send as JSON.
            token_file: A bearer token's file instead of the server's own.
            connect_timeout: Seconds until the connection must be there, if that matters to the caller.
        """
        sent = {"Accept": ACCEPT, **(headers or {})}
        began = self._clock()
        try:
            token = token_file or access.bearer_token_file
            if token is not None:
                sent["Authorization"] = f"Bearer {read_secret(token)}"
            url = URL(access.base + path, encoded=True)
            trust = self._trust(access)
        except (ValueError, OSError) as error:
            return Page(seconds=0.0, error=f"the request cannot be made: {error}", kind="other")
        async with self._turn(url.host or ""):
            began = self._clock()
            try:
                async with (
                    asyncio.timeout(timeout),
                    self._client().request(
                        method,
                        url,
                        headers=sent,
                        json=json,
                        ssl=trust,
                        allow_redirects=False,
                        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout),
                    ) as response,
                ):
                    raw = await read_bounded(response.content.iter_any(), response.headers.get("Content-Encoding", ""))
                    return Page(
                        seconds=self._clock() - began,
                        status=response.status,
                        ctype=response.headers.get("Content-Type", ""),
                        body=raw.decode("utf-8", "replace"),
                        headers={name: response.headers[name] for name in KEPT_HEADERS if name in response.headers},
                    )
            except (TimeoutError, OSError, aiohttp.ClientError, BodyError, ValueError) as error:
                kind, words = classify(error)
                if kind in ("timeout", "refused", "reset", "noroute"):
                    self._forget_address(url)
                return Page(seconds=self._clock() - began, error=words, kind=kind)

    def _forget_address(self, url: URL) -> None:
        """A container that was replaced has another address under the same name: the next request asks anew."""
        connector = self._client().connector
        if isinstance(connector, aiohttp.TCPConnector) and url.host is not None and url.port is not None:
            connector.clear_dns_cache(url.host, url.port)

    def _trust(self, access: Access) -> ssl.SSLContext | bool:
        if not access.base.startswith("https:"):
            return True
        key = (access.ca_file, access.insecure_skip_verify)
        if key not in self._contexts:
            context = ssl.create_default_context(cafile=access.ca_file)
            if access.insecure_skip_verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._contexts[key] = context
        return self._contexts[key]
