"""One Docker host's HTTP API through the docker SDK's transport: bounded, never retried, one call at a time.

The SDK gives Unix sockets and TLS. Its container methods are not used: they take name prefixes, override
the read timeout, and read bodies without limit.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
import requests
from docker.errors import DockerException
from docker.tls import TLSConfig

from llm_remediator.config import DockerHost
from llm_remediator.containers import RuntimeHealth
from llm_remediator.docker_facts import api_version
from llm_remediator.foreign_json import UNREADABLE, loads
from llm_remediator.host_thread import DeadlineError, HostBusyError, HostThread
from llm_remediator.outcome import Outcome, Status, failed

NEWEST_API = "1.44"
"""Newest version whose answers we know; daemons up to 29 speak it (their minimum is 1.40 to 1.44)."""
CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 10.0
SLACK = 5.0
_BODY_LIMIT = 8 * 1024 * 1024
_NEVER_REACHED = (FileNotFoundError, ConnectionRefusedError, PermissionError, BlockingIOError)
"""The last: the backlog of a hung daemon's socket is full."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of the daemon, whatever its status."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    def json(self) -> Any:
        """The body as JSON; `ValueError` if it is none."""
        return loads(self.body)

    @property
    def message(self) -> str:
        """The daemon's own words."""
        try:
            text = str(loads(self.body)["message"])
        except (ValueError, KeyError, TypeError):
            text = self.body[:300].decode("utf-8", "replace")
        return text.strip()[:500]


def uses_tls(host: DockerHost) -> bool:
    """True if the connection is encrypted: certificates are given, or the URL says https."""
    return bool(host.ca_file or host.cert_file) or host.url.startswith("https://")


class DockerApi:
    """Sends one request at a time to one host and knows whether the host can be asked at all."""

    def __init__(self, host: DockerHost, monotonic: Any = time.monotonic) -> None:
        self.host = host
        self._thread = HostThread(host.name, monotonic)
        self._client: docker.APIClient | None = None
        self._stamp: tuple[float, ...] = ()
        self._version: str | None = None
        self._down = "not asked yet"

    @property
    def health(self) -> RuntimeHealth:
        """Up after any answer; down after a call without one, or while one is overdue."""
        overdue = self._thread.overdue_since
        if overdue is not None:
            return RuntimeHealth(False, f"no answer yet to: {self._thread.out}", overdue)
        return RuntimeHealth(not self._down, self._down)

    @property
    def version(self) -> str | None:
        """The negotiated API version, None before the first answer."""
        return self._version

    async def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        read_timeout: float = READ_TIMEOUT,
        tail_bytes: int | None = None,
    ) -> Outcome[Reply]:
        """GET; with `tail_bytes` only the end of a long body is kept."""
        return await self._call("GET", path, params, None, read_timeout, tail_bytes)

    async def post(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        body: Any = None,
        read_timeout: float,
    ) -> Outcome[Reply]:
        """POST, once. `TIMED_OUT` means that it may have happened."""
        return await self._call("POST", path, params, body, read_timeout, None)

    async def negotiate(self) -> Outcome[Reply]:
        """Ask the unversioned `/version` and settle on a version for the calls that follow."""
        reply = await self._call("GET", "/version", None, None, READ_TIMEOUT, None)
        if reply.ok:
            try:
                self._version = api_version(reply.get().json(), NEWEST_API)
            except UNREADABLE:
                return failed(Status.REFUSED, f"{self.host.url} does not answer as a Docker API", reply.seconds)
        return reply

    async def _call(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: Any,
        read_timeout: float,
        tail_bytes: int | None,
    ) -> Outcome[Reply]:
        if self._version is None and path != "/version":
            version = await self.negotiate()
            if not version.ok:
                return version
        began = time.monotonic()
        what = f"{method} {path}"
        versioned = path if path == "/version" else f"/v{self._version}{path}"
        # The read timeout is per read; a body in drips must end too.
        deadline = CONNECT_TIMEOUT + read_timeout + SLACK
        try:
            reply = await self._thread.run(
                what,
                lambda: self._send(method, versioned, params, body, read_timeout, tail_bytes, deadline),
                deadline=deadline,
                act=method == "POST",
            )
        except HostBusyError as exc:
            return failed(Status.UNAVAILABLE, f"Docker host {self.host.name}: {exc}")
        except (DeadlineError, requests.RequestException, DockerException, OSError, ValueError) as exc:
            status = _classify(exc, method)
            self._down = f"{self.host.url}: {_root(exc)}"
            return failed(status, f"{what} on {self._down}", time.monotonic() - began)
        self._down = ""
        seconds = time.monotonic() - began
        if reply.status < 300 or reply.status == 304:
            return Outcome(Status.OK, reply, seconds=seconds)
        status = Status.NOT_FOUND if reply.status == 404 else Status.REFUSED
        if reply.status == 400 and "version" in reply.message:
            self._version = None
        said = f"{what}: {reply.status} {reply.message}"
        if path == "/version":
            self._down = f"{self.host.url}: {said}"
        return failed(status, said, seconds)

    def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: Any,
        read_timeout: float,
        tail_bytes: int | None,
        limit: float,
    ) -> Reply:
        _probe(self.host.url)
        client = self._connect()
        until = time.monotonic() + limit
        with client.request(
            method,
            f"{client.base_url}{path}",
            params=dict(params or {}),
            json=body,
            # A kept-alive connection may have died with a daemon's restart; a POST could not tell.
            headers={"Connection": "close"},
            timeout=(CONNECT_TIMEOUT, read_timeout),
            allow_redirects=False,
            stream=True,
        ) as answer:
            data = bytearray()
            for chunk in answer.iter_content(65536):
                data += chunk
                if tail_bytes is not None and len(data) > 2 * tail_bytes:
                    del data[:-tail_bytes]
                if len(data) > _BODY_LIMIT:
                    raise ValueError(f"{path}: the answer is larger than {_BODY_LIMIT} bytes")
                if time.monotonic() > until:
                    raise requests.ReadTimeout(f"{path}: the answer did not end within {limit:g} s")
            if tail_bytes is not None:
                del data[:-tail_bytes]
            return Reply(answer.status_code, bytes(data), answer.headers)

    def _connect(self) -> docker.APIClient:
        """The SDK's client; a new one when certificates were renewed."""
        host = self.host
        stamp = tuple(Path(f).stat().st_mtime for f in (host.ca_file, host.cert_file, host.key_file) if f is not None)
        if self._client is None or stamp != self._stamp:
            tls: TLSConfig | bool = False
            if uses_tls(host):
                pair = (host.cert_file, host.key_file) if host.cert_file and host.key_file else None
                tls = TLSConfig(client_cert=pair, ca_cert=host.ca_file, verify=True)
            client = docker.APIClient(host.url, version=NEWEST_API, tls=tls, timeout=int(READ_TIMEOUT))
            # Proxies of the environment must never see a Docker host.
            client.trust_env = False
            self._client, self._stamp = client, stamp
        return self._client

    def close(self) -> None:
        """Let go of the thread; a hung one is left behind."""
        self._thread.close()


def _probe(url: str) -> None:
    """Fail here, and without a leaked socket (docker/transport/unixconn.py), if nobody listens."""
    if not url.startswith("unix://"):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_TIMEOUT)
        probe.connect(url.removeprefix("unix://"))


def _chain(exc: BaseException) -> list[BaseException]:
    """The exception, its causes and the exceptions that urllib3 carries as arguments."""
    found: list[BaseException] = []
    todo: list[Any] = [exc]
    while todo and len(found) < 20:
        item = todo.pop(0)
        if isinstance(item, BaseException) and item not in found:
            found.append(item)
            todo += [item.__cause__, item.__context__, getattr(item, "reason", None), *item.args]
    return found


def _classify(exc: BaseException, method: str) -> Status:
    if isinstance(exc, DeadlineError | requests.ReadTimeout):
        return Status.TIMED_OUT
    if type(exc) is TimeoutError:  # the probe's: the backlog of a hung daemon is full
        return Status.UNAVAILABLE
    chain = _chain(exc)
    never = (*_NEVER_REACHED, requests.ConnectTimeout, requests.exceptions.SSLError, DockerException)
    if any(isinstance(e, never) or type(e).__name__ in ("NewConnectionError", "NameResolutionError") for e in chain):
        return Status.UNAVAILABLE
    if method == "POST":
        return Status.TIMED_OUT
    return Status.REFUSED if isinstance(exc, ValueError) else Status.UNAVAILABLE


def _root(exc: BaseException) -> str:
    """The innermost cause in words, with what to do where that is known."""
    for item in _chain(exc):
        if isinstance(item, PermissionError):
            return "permission denied; give this process the socket's group, or use the socket proxy"
        if isinstance(item, FileNotFoundError):
            return "no such socket; is the Docker Engine running, is the path mounted?"
        if isinstance(item, ConnectionRefusedError):
            return "connection refused; is the Docker Engine running?"
    return str(exc)[:300]
