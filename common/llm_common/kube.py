"""A small client of the Kubernetes API: get, list, watch, create, replace, delete. Used with the few verbs that RBAC allows.

The service account's token and CA are read when they are used, since the kubelet rotates them. Nothing is retried here: a
call that got no answer may have been done, and only its caller can tell what to look at.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

from llm_common.secrets import read_secret

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
BODY_LIMIT = 32 * 1024 * 1024


class KubeError(Exception):
    """The API could not be asked, or gave no answer; `sent` says whether a request may have been carried out."""

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent


@dataclass(frozen=True, slots=True)
class KubeAccess:
    """Where the API server is and who we are. Paths of secrets, never secrets."""

    api: str
    token_file: str | None = None
    ca_file: str | None = None
    namespace: str = "default"

    @classmethod
    def in_cluster(cls) -> KubeAccess | None:
        """The access of a pod's service account, or None outside a cluster."""
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not (ACCOUNT / "token").exists():
            return None
        name = f"[{host}]" if ":" in host else host
        namespace = (ACCOUNT / "namespace").read_text().strip() if (ACCOUNT / "namespace").exists() else "default"
        return cls(f"https://{name}:{port}", str(ACCOUNT / "token"), str(ACCOUNT / "ca.crt"), namespace)


@dataclass(frozen=True, slots=True)
class KubeReply:
    """An answer; `body` is its JSON, or its text if it is none."""

    status: int
    body: Any

    @property
    def ok(self) -> bool:
        """2xx."""
        return 200 <= self.status < 300

    @property
    def words(self) -> str:
        """What the API says of a refusal."""
        message = self.body.get("message") if isinstance(self.body, dict) else str(self.body)[:200]
        return f"{self.status} {message or ''}".strip()


class Kube:
    """Calls to one API server. Open it within a running loop, and close it."""

    def __init__(self, access: KubeAccess) -> None:
        self.access = access
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | None = None
        self._tls_of: float = 0.0

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        timeout: float = 10.0,
    ) -> KubeReply:
        """One request, one answer; `KubeError` if there is none."""
        try:
            async with asyncio.timeout(timeout), self._request(method, path, params, body) as response:
                return KubeReply(response.status, _json(await _whole(response)))
        except TimeoutError as error:
            raise KubeError(f"{method} {path}: no answer within {timeout:g} s", sent=True) from error
        except (aiohttp.ClientError, OSError, ValueError, _TooLargeError) as error:
            never = isinstance(error, aiohttp.ClientConnectorError | ValueError)
            raise KubeError(f"{method} {path}: {error or type(error).__name__}", sent=not never) from error

    async def watch(
        self, path: str, *, params: Mapping[str, str], version: str, seconds: float
    ) -> AsyncGenerator[tuple[str, Mapping[str, Any]], None]:
        """Changes after a list's `version` as ``(type, object)``, for at most `seconds`; the caller lists again after it.

        Ends quietly at the time's end, at 410 (the version is too old) and at a broken stream: all three mean "list again".
        """
        asked = {**params, "watch": "1", "resourceVersion": version, "timeoutSeconds": str(max(1, round(seconds)))}
        try:
            async with asyncio.timeout(seconds + 5), self._request("GET", path, asked, None) as response:
                if response.status != 200:
                    return
                async for line in _lines(response):
                    event = _json(line)
                    if not isinstance(event, dict) or event.get("type") in (None, "ERROR"):
                        return
                    yield str(event["type"]), event.get("object") or {}
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError, _TooLargeError):
            return

    def _request(self, method: str, path: str, params: Mapping[str, str] | None, body: Mapping[str, Any] | None) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=5.0), trust_env=False
            )
        headers = {"Accept": "application/json", "User-Agent": "stuckproof"}
        if self.access.token_file is not None:
            headers["Authorization"] = f"Bearer {read_secret(self.access.token_file)}"
        url = URL(self.access.api.rstrip("/") + path, encoded=True)
        return self._session.request(
            method,
            url.update_query(params) if params else url,
            json=body,
            headers=headers,
            ssl=self._trust(),
            allow_redirects=False,
        )

    def _trust(self) -> ssl.SSLContext | bool:
        if self.access.ca_file is None:
            return True
        changed = os.stat(self.access.ca_file).st_mtime
        if self._tls is None or changed != self._tls_of:
            self._tls = ssl.create_default_context(cafile=self.access.ca_file)
            self._tls_of = changed
        return self._tls

    async def close(self) -> None:
        """Release the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


class _TooLargeError(Exception):
    pass


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        _bounded(body)
    return bytes(body)


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Lines of any length up to the limit: one pod with its managed fields is longer than aiohttp's own bound for a line."""
    rest = bytearray()
    async for chunk in response.content.iter_any():
        rest += chunk
        _bounded(rest)
        while (end := rest.find(b"\n")) >= 0:
            yield bytes(rest[:end])
            del rest[: end + 1]


def _bounded(data: bytearray) -> None:
    if len(data) > BODY_LIMIT:
        raise _TooLargeError(f"the answer is larger than {BODY_LIMIT} bytes")


def _json(data: bytes) -> Any:
    try:
        return json.loads(data) if data.strip() else None
    except (ValueError, RecursionError):
        return data.decode("utf-8", "replace")
