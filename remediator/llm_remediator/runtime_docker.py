"""Containers of one Docker host, by rules that keep a restart from hitting the wrong one or hitting twice."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from llm_remediator.config import DockerHost
from llm_remediator.docker_api import DockerApi, Reply, uses_tls
from llm_remediator.docker_facts import (
    FULL_ID,
    PS_ARGS,
    list_filters,
    looks_like_watchdog,
    read_container,
    read_event,
    read_matches,
    read_processes,
    version_warnings,
)
from llm_remediator.ports import (
    Container,
    Event,
    Match,
    Outcome,
    Process,
    RuntimeHealth,
    RuntimeInfo,
    Selector,
    Status,
    failed,
)
from llm_remediator.socket_rules import PROXY_HEADER

T = TypeVar("T")

KILL_WAIT = 14.0
"""After the grace dockerd waits 10 s for SIGKILL, 2 s for a direct one, 2 s more (moby `kill.go`)."""
START_MARGIN = 46.0
"""For the start after it: a GPU runtime hook takes seconds, a mount on a busy disk more."""
_NO_NULS = dict.fromkeys(range(8))
INSPECT_VALID = 60.0
"""An id may be acted on for so long after this runtime inspected it."""


class DockerRuntime:
    """`ports.ContainerRuntime` over the Docker Engine API (Docker, Podman's compatible service)."""

    def __init__(
        self,
        host: DockerHost | DockerApi,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._api = host if isinstance(host, DockerApi) else DockerApi(host, monotonic)
        self._wall = wall
        self._looked = Looked(monotonic)

    @property
    def host(self) -> str:
        """Name from the configuration."""
        return self._api.host.name

    @property
    def health(self) -> RuntimeHealth:
        """State now, without asking."""
        return self._api.health

    async def ping(self) -> Outcome[RuntimeInfo]:
        """Negotiates anew, so that a replaced daemon is noticed."""
        return await ping(self._api, self._wall)

    async def find(self, selector: Selector) -> Outcome[tuple[Match, ...]]:
        """`compose run` containers are left out; stopped and half-made ones are not."""
        try:
            filters = list_filters(selector)
        except ValueError as exc:
            return failed(Status.REFUSED, str(exc))
        reply = await self._api.get("/containers/json", {"all": "1", "filters": json.dumps(filters)})
        return read(reply, lambda raw: read_matches(raw, selector))

    async def inspect(self, container_id: str) -> Outcome[Container]:
        """Remembers when it looked: `restart` and `start` want a recent look."""
        if refusal := _bad_id(container_id):
            return refusal
        outcome = read(await self._api.get(f"/containers/{container_id}/json"), read_container)
        if outcome.ok:
            if outcome.get().id != container_id:
                return failed(Status.REFUSED, f"asked for {container_id[:12]}, got {outcome.get().id[:12]}")
            self._looked.note(outcome.get())
        else:
            self._looked.forget(container_id)
        return outcome

    async def restart(self, container_id: str, *, stop_timeout: float) -> Outcome[None]:
        """One POST. Docker would also start a stopped or paused one: those are refused here."""
        if bad := _bad_id(container_id):
            return bad
        container, refusal = self._looked.take(container_id)
        if container is None:
            return refusal
        if not container.running or container.paused or container.restarting:
            why = f"{container.name} is {container.state}, not plainly running: nothing was sent"
            return failed(Status.UNAVAILABLE, why)
        grace = max(1, round(stop_timeout))
        reply = await self._api.post(
            f"/containers/{container_id}/restart",
            {"t": str(grace)},
            read_timeout=grace + KILL_WAIT + START_MARGIN,
        )
        return said(reply)

    async def start(self, container_id: str) -> Outcome[None]:
        """One POST; 304 (it runs already) is fine."""
        if bad := _bad_id(container_id):
            return bad
        container, refusal = self._looked.take(container_id)
        if container is None:
            return refusal
        reply = await self._api.post(f"/containers/{container_id}/start", read_timeout=START_MARGIN)
        return said(reply)

    async def top(self, container_id: str) -> Outcome[tuple[Process, ...]]:
        """`ps` runs on the Docker host; it is `REFUSED` where that has none."""
        if refusal := _bad_id(container_id):
            return refusal
        return read(await self._api.get(f"/containers/{container_id}/top", {"ps_args": PS_ARGS}), read_processes)

    async def logs(self, container_id: str, *, lines: int, max_bytes: int) -> Outcome[str]:
        """Both streams, in the daemon's order, with timestamps."""
        if refusal := _bad_id(container_id):
            return refusal
        reply = await self._api.get(
            f"/containers/{container_id}/logs",
            {"stdout": "1", "stderr": "1", "timestamps": "1", "tail": str(lines)},
            tail_bytes=max_bytes,
        )
        if not reply.ok:
            return failed(reply.status, reply.detail, reply.seconds)
        return Outcome(Status.OK, plain_log(reply.get().body), seconds=reply.seconds)

    async def events(self, container_id: str, *, since: float, until: float) -> Outcome[tuple[Event, ...]]:
        """`until` is cut to now: the daemon would otherwise wait for the future."""
        if refusal := _bad_id(container_id):
            return refusal
        reply = await self._api.get(
            "/events",
            {
                "since": f"{since:.9f}",
                "until": f"{min(until, self._wall()):.9f}",
                "filters": json.dumps({"type": ["container"], "container": [container_id]}),
            },
        )
        if not reply.ok:
            return failed(reply.status, reply.detail, reply.seconds)
        try:
            raw = [json.loads(line) for line in reply.get().body.splitlines() if line.strip()]
        except ValueError:
            return failed(Status.REFUSED, "events are not JSON lines", reply.seconds)
        ours = [e for e in raw if (e.get("Actor") or {}).get("ID", e.get("id")) == container_id]
        return Outcome(Status.OK, tuple(sorted(map(read_event, ours), key=lambda e: e.at)), seconds=reply.seconds)

    async def watchdogs(self) -> Outcome[tuple[str, ...]]:
        """By image name, among running containers."""
        reply = await self._api.get("/containers/json", {"filters": json.dumps({"status": ["running"]})})

        def named(raw: Any) -> tuple[str, ...]:
            return tuple(
                f"{str((c.get('Names') or ['?'])[0]).lstrip('/')} ({c.get('Image')})"
                for c in raw
                if looks_like_watchdog(str(c.get("Image", "")))
            )

        return read(reply, named)

    async def close(self) -> None:
        """The thread ends when its call is back."""
        self._api.close()


class Looked:
    """Remembers the last look at each id: one look is good for one act, and not for long."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seen: dict[str, tuple[float, Container]] = {}

    def note(self, container: Container) -> None:
        """It was inspected just now."""
        self._seen[container.id] = (self._monotonic(), container)

    def forget(self, container_id: str) -> None:
        """The last look failed: what was seen before it is no basis for an act."""
        self._seen.pop(container_id, None)

    def take(self, container_id: str) -> tuple[Container | None, Outcome[None]]:
        """What was seen, for the one act that may follow; else None, and why."""
        at, container = self._seen.pop(container_id, (0.0, None))
        if container is None or self._monotonic() - at > INSPECT_VALID:
            why = f"{container_id[:12]!r} was not inspected in the last {INSPECT_VALID:g} s: look before acting"
            return None, failed(Status.UNAVAILABLE, why)
        return container, Outcome(Status.OK)


async def ping(api: DockerApi, wall: Callable[[], float] = time.time) -> Outcome[RuntimeInfo]:
    """Negotiate the API version; learn what the engine is and how far its clock is off."""
    before = wall()
    reply = await api.negotiate()
    if not reply.ok:
        return failed(reply.status, reply.detail, reply.seconds)
    raw = reply.get().json()
    version = str(raw.get("Version", "unknown"))
    warnings = list(version_warnings(version))
    skew = _skew(reply.get(), before, wall())
    if skew is not None and abs(skew) > 5:
        warnings.append(f"the clock of Docker host {api.host.name} differs by {skew:+.0f} s: start times are wrong by it")
    if not api.host.url.startswith("unix://") and not uses_tls(api.host) and PROXY_HEADER not in reply.get().headers:
        warnings.append(
            f"Docker host {api.host.name} is spoken to without TLS: fine for a socket proxy in a network of its own, "
            "else whoever reaches that port is root there"
        )
    return Outcome(Status.OK, RuntimeInfo(version, api.version or "", tuple(warnings), skew), seconds=reply.seconds)


def plain_log(raw: bytes) -> str:
    """Docker's multiplexed log stream without its 8-byte frame headers; a TTY's raw stream as it is.

    The beginning may be cut anywhere, so frames are found by their shape: stream 1 or 2, three zeros, length.
    A cut header leaves a stray character at most.
    """
    out = bytearray()
    at = 0
    while at < len(raw):
        head = raw[at : at + 8]
        if len(head) == 8 and head[0] in (1, 2) and head[1:4] == b"\0\0\0":
            size = int.from_bytes(head[4:], "big")
            out += raw[at + 8 : at + 8 + size]
            at += 8 + size
        else:
            nxt = min(
                (n for n in (raw.find(bytes([s, 0, 0, 0]), at + 1) for s in (1, 2)) if n > 0),
                default=len(raw),
            )
            out += raw[at:nxt]
            at = nxt
    return out.decode("utf-8", "replace").translate(_NO_NULS)


def _bad_id(container_id: str) -> Outcome[Any] | None:
    """Docker would take a name or any unique prefix of an id for an id."""
    if FULL_ID.fullmatch(container_id):
        return None
    return failed(Status.REFUSED, f"{container_id!r} is no full 64-hex container id")


def read(reply: Outcome[Reply], reader: Callable[[Any], T]) -> Outcome[T]:
    """The JSON answer as `reader` reads it; what it cannot read is `REFUSED`."""
    if not reply.ok:
        return failed(reply.status, reply.detail, reply.seconds)
    try:
        return Outcome(Status.OK, reader(reply.get().json()), seconds=reply.seconds)
    except (ValueError, TypeError, AttributeError, KeyError) as exc:
        return failed(Status.REFUSED, f"the answer cannot be read: {exc}", reply.seconds)


def said(reply: Outcome[Reply]) -> Outcome[None]:
    """How a call without a result ended."""
    return Outcome(reply.status, None, reply.detail, reply.seconds)


def _skew(reply: Reply, before: float, after: float) -> float | None:
    """Daemon's clock less ours in seconds, from the Date header (whole seconds); None if it sent none."""
    try:
        theirs = parsedate_to_datetime(reply.headers.get("Date", "")).timestamp()
    except (ValueError, TypeError):
        return None
    if before - 1 <= theirs <= after:
        return 0.0
    return theirs + 0.5 - (before + after) / 2
