"""A Docker Swarm service as a target: a forced update with nothing else changed, which Swarm rolls task by task.

Swarm owns its containers, so they are never restarted one by one. `version` in the update is Swarm's own lock:
if anybody changed the service since we looked, the manager refuses, and a lost answer cannot act twice.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from llm_remediator.containers import Container, Event, Match, Process, RuntimeHealth, RuntimeInfo, Selector
from llm_remediator.docker_api import DockerApi
from llm_remediator.docker_calls import KILL_WAIT, START_MARGIN, Looked, ping, read, said
from llm_remediator.docker_facts import unix_time
from llm_remediator.docker_log import plain_log
from llm_remediator.outcome import Outcome, Status, failed

_SERVICE_ID = re.compile(r"[0-9a-z]{25}")
_UNFINISHED = frozenset({"updating", "rollback_started", "rollback_paused", "paused"})
POLL = 1.0


class SwarmRuntime:
    """`containers.ContainerRuntime` over a Swarm manager; ids are service ids, incarnations its running tasks."""

    def __init__(
        self,
        api: DockerApi,
        sleep: Callable[[float], Awaitable[None]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._sleep = sleep
        self._monotonic = monotonic
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
        """Negotiates anew."""
        return await ping(self._api)

    async def find(self, selector: Selector) -> Outcome[tuple[Match, ...]]:
        """Services of exactly that name."""
        name = selector.service
        if not name:
            return failed(Status.REFUSED, "an empty selector would match every service")
        reply = await self._api.get("/services", {"filters": json.dumps({"name": [name]})})
        return read(
            reply,
            lambda raw: tuple(Match(str(s["ID"]), name, "service") for s in raw if s["Spec"]["Name"] == name),
        )

    async def inspect(self, container_id: str) -> Outcome[Container]:
        """The service and the tasks that Swarm wants running, read as one container."""
        outcome = await self._look(container_id)
        if outcome.ok:
            self._looked.note(outcome.get())
        else:
            self._looked.forget(container_id)
        return outcome

    async def _look(self, container_id: str) -> Outcome[Container]:
        if not _SERVICE_ID.fullmatch(container_id):
            return failed(Status.REFUSED, f"{container_id!r} is no full service id")
        service = await self._service(container_id)
        if not service.ok:
            return failed(service.status, service.detail, service.seconds)
        reply = await self._api.get("/tasks", {"filters": json.dumps({"service": [container_id]})})
        return read(reply, lambda tasks: read_service(service.get(), tasks))

    async def restart(self, container_id: str, *, stop_timeout: float) -> Outcome[None]:
        """Force an update and wait until its tasks are new. The service's own stop grace applies."""
        seen, refusal = self._looked.take(container_id)
        if seen is None:
            return refusal
        if not seen.running or seen.restarting:
            why = f"service {seen.name} is {seen.state}, not plainly running: nothing was sent"
            return failed(Status.UNAVAILABLE, why)
        service = await self._service(container_id)
        if not service.ok:
            return failed(service.status, service.detail, service.seconds)
        spec: dict[str, Any] = service.get()["Spec"]
        if why := _several_at_once(spec):
            return failed(Status.REFUSED, f"service {seen.name}: {why}")
        task = {**spec["TaskTemplate"], "ForceUpdate": int(spec["TaskTemplate"].get("ForceUpdate") or 0) + 1}
        began = self._monotonic()
        sent = await self._api.post(
            f"/services/{container_id}/update",
            {"version": str(service.get()["Version"]["Index"])},
            body={**spec, "TaskTemplate": task},
            read_timeout=30.0,
        )
        if not sent.ok:
            return said(sent)
        return await self._until_new(seen, began, max(stop_timeout, float(seen.stop_timeout or 10)))

    async def _until_new(self, before: Container, began: float, grace: float) -> Outcome[None]:
        tasks = max(1, before.started_at_raw.count(",") + 1)
        limit = (grace + KILL_WAIT + START_MARGIN) * tasks
        while (spent := self._monotonic() - began) < limit:
            now = await self._look(before.id)
            if now.ok and now.get().running and not now.get().restarting and _all_new(before, now.get()):
                return Outcome(Status.OK, None, seconds=spent)
            if now.status is Status.NOT_FOUND:
                return failed(Status.NOT_FOUND, now.detail, spent)
            await self._sleep(POLL)
        return failed(Status.TIMED_OUT, f"the update of {before.name} was accepted and is not done after {limit:g} s", limit)

    async def start(self, container_id: str) -> Outcome[None]:
        """Never: Swarm starts its tasks itself."""
        return failed(Status.REFUSED, "Swarm starts its own tasks")

    async def top(self, container_id: str) -> Outcome[tuple[Process, ...]]:
        """Not to be had: the task may run on another node."""
        return failed(Status.REFUSED, "processes of a Swarm service cannot be listed from its manager")

    async def logs(self, container_id: str, *, lines: int, max_bytes: int) -> Outcome[str]:
        """Of all its tasks."""
        if not _SERVICE_ID.fullmatch(container_id):
            return failed(Status.REFUSED, f"{container_id!r} is no full service id")
        query = {"stdout": "1", "stderr": "1", "timestamps": "1", "tail": str(lines)}
        reply = await self._api.get(f"/services/{container_id}/logs", query, tail_bytes=max_bytes)
        if not reply.ok:
            return failed(reply.status, reply.detail, reply.seconds)
        return Outcome(Status.OK, plain_log(reply.get().body), seconds=reply.seconds)

    async def events(self, container_id: str, *, since: float, until: float) -> Outcome[tuple[Event, ...]]:
        """Not told in a way that says who acted."""
        return failed(Status.REFUSED, "Swarm's events do not tell who restarted a task")

    async def watchdogs(self) -> Outcome[tuple[str, ...]]:
        """None are looked for: Swarm itself replaces unhealthy tasks, and that is seen as foreign starts."""
        return Outcome(Status.OK, ())

    async def close(self) -> None:
        """The thread ends when its call is back."""
        self._api.close()

    async def _service(self, service_id: str) -> Outcome[dict[str, Any]]:
        reply = await self._api.get(f"/services/{service_id}")
        return read(reply, lambda raw: _checked(raw, service_id))


def read_service(service: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> Container:
    """`GET /services/ID` and its tasks as one container. `started_at` is its newest running task's."""
    spec = service["Spec"]
    wanted = [t for t in tasks if t.get("DesiredState") == "running"]
    running = [t for t in wanted if (t.get("Status") or {}).get("State") == "running"]
    updating = (service.get("UpdateStatus") or {}).get("State") in _UNFINISHED
    stamps = [str(t["Status"].get("Timestamp", "")) for t in running]
    times = [at for at in map(unix_time, stamps) if at is not None]
    newest = max(tasks, key=lambda t: unix_time(str((t.get("Status") or {}).get("Timestamp", ""))) or 0.0, default=None)
    last = (newest.get("Status") or {}) if newest is not None else {}
    changing = updating or len(running) < len(wanted)
    grace = ((spec.get("TaskTemplate") or {}).get("ContainerSpec") or {}).get("StopGracePeriod")
    return Container(
        id=str(service["ID"]),
        name=str(spec["Name"]),
        state="running" if running and not changing else "restarting" if wanted else "exited",
        running=bool(running),
        paused=False,
        restarting=changing,
        started_at=max(times, default=None),
        started_at_raw=",".join(sorted(f"{t['ID']}@{s}" for t, s in zip(running, stamps, strict=True))),
        finished_at=None if running else unix_time(str(last.get("Timestamp", ""))),
        error="" if running else str(last.get("Err") or ""),
        pid=int(((running[0]["Status"].get("ContainerStatus") or {}).get("PID") or 0) if len(running) == 1 else 0),
        image=str(((spec.get("TaskTemplate") or {}).get("ContainerSpec") or {}).get("Image", "")),
        stop_timeout=int(grace // 1_000_000_000) if grace else None,
        # Swarm gives every task an init only if asked; zombies there are Swarm's to reap with the container.
        init=True,
        labels={str(k): str(v) for k, v in (spec.get("Labels") or {}).items()},
    )


def _checked(raw: Any, service_id: str) -> dict[str, Any]:
    if raw["ID"] != service_id or "TaskTemplate" not in raw["Spec"] or "Index" not in raw["Version"]:
        raise ValueError(f"asked for service {service_id}, got something else")
    return dict(raw)


def _several_at_once(spec: Mapping[str, Any]) -> str:
    replicas = ((spec.get("Mode") or {}).get("Replicated") or {}).get("Replicas", 2)
    parallel = (spec.get("UpdateConfig") or {}).get("Parallelism", 1)
    if replicas == 1 or parallel == 1:
        return ""
    return f"its update_config updates {parallel or 'all'} tasks at once; set parallelism: 1 so that the others go on"


def _all_new(before: Container, now: Container) -> bool:
    old = set(before.started_at_raw.split(","))
    return bool(now.started_at_raw) and not old & set(now.started_at_raw.split(","))
