"""Containers of one Docker host, by rules that keep a restart from hitting the wrong one or hitting twice."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from llm_remediator.config import DockerHost
from llm_remediator.containers import Container, Event, Match, Process, RuntimeHealth, RuntimeInfo, Selector
from llm_remediator.docker_api import DockerApi
from llm_remediator.docker_calls import KILL_WAIT, START_MARGIN, Looked, ping, read, said
from llm_remediator.docker_facts import (
    FULL_ID,
    PS_ARGS,
    list_filters,
    looks_like_watchdog,
    read_container,
    read_event,
    read_matches,
    read_processes,
)
from llm_remediator.docker_log import plain_log
from llm_remediator.foreign_json import UNREADABLE, loads, why
from llm_remediator.outcome import Outcome, Status, failed


class DockerRuntime:
    """`containers.ContainerRuntime` over the Docker Engine API (Docker, Podman's compatible service)."""

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
            raw = [loads(line) for line in reply.get().body.splitlines() if line.strip()]
            ours = [e for e in raw if (e.get("Actor") or {}).get("ID", e.get("id")) == container_id]
            found = tuple(sorted(map(read_event, ours), key=lambda e: e.at))
        except UNREADABLE as exc:
            return failed(Status.REFUSED, f"events are not JSON lines of events: {why(exc)}", reply.seconds)
        return Outcome(Status.OK, found, seconds=reply.seconds)

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


def _bad_id(container_id: str) -> Outcome[Any] | None:
    """Docker would take a name or any unique prefix of an id for an id."""
    if FULL_ID.fullmatch(container_id):
        return None
    return failed(Status.REFUSED, f"{container_id!r} is no full 64-hex container id")
