"""Kubernetes as a back end: one pod is evicted (or deleted) by its uid, and its controller makes another.

The uid is a precondition, so a pod that was replaced since we looked is never touched; eviction respects
PodDisruptionBudgets. Tried against an HTTP server that checks verbs, paths and preconditions, not against a real cluster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from llm_common.kube import Kube, KubeError, KubeReply
from llm_remediator.containers import Container, Event, Match, Process, RuntimeHealth, RuntimeInfo, Selector
from llm_remediator.docker_calls import Looked
from llm_remediator.kube_pods import BARE, Pod, container_of, identity, living, match
from llm_remediator.outcome import Outcome, Status, failed

WATCH_SECONDS = 10.0
PAUSE = 1.0
"""Seconds between two lists while a successor is awaited: a watch may end at once, refused or cut off."""
SCHEDULING = 120.0
"""Seconds that a new pod may take to be scheduled and its container to start, image pull included."""


class KubernetesRuntime:
    """`containers.ContainerRuntime` over one API server; ids are controllers, incarnations are pods and their starts.

    Args:
        kube: The API.
        selectors: Every selector of the configuration: an id is looked up among their pods, also after our own restart.
        evict: Ask for an eviction, which a PodDisruptionBudget may refuse; False deletes.
        monotonic, sleep: Time.
    """

    def __init__(
        self,
        kube: Kube,
        selectors: Sequence[Selector],
        *,
        evict: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._kube = kube
        self._selectors = tuple(selectors)
        self._evict = evict
        self._monotonic = monotonic
        self._sleep = sleep
        self._looked = Looked(monotonic)
        self._health = RuntimeHealth(True)

    @property
    def host(self) -> str:
        """Always the same: one cluster."""
        return "kubernetes"

    @property
    def health(self) -> RuntimeHealth:
        """As the last call left it."""
        return self._health

    async def ping(self) -> Outcome[RuntimeInfo]:
        """The API server's version."""
        reply = await self._get("/version", {})
        if not reply.ok:
            return failed(reply.status, reply.detail)
        version = str((reply.get() or {}).get("gitVersion", "?"))
        return Outcome(Status.OK, RuntimeInfo(version, version))

    async def find(self, selector: Selector) -> Outcome[tuple[Match, ...]]:
        """Living pods of the label selector, in its namespace."""
        if not selector.pods:
            return failed(Status.REFUSED, "an empty selector would match every pod")
        pods = await self._pods(selector)
        if not pods.ok:
            return failed(pods.status, pods.detail, pods.seconds)
        return Outcome(Status.OK, tuple(match(pod, selector) for pod in living(pods.get()[0])))

    async def inspect(self, container_id: str) -> Outcome[Container]:
        """The controller's pod as a container."""
        found = await self._pod_of(container_id)
        if not found.ok:
            self._looked.forget(container_id)
            return failed(found.status, found.detail, found.seconds)
        pod, selector, others, _ = found.get()
        box = container_of(pod, container_id, selector.pod_container, others)
        self._looked.note(box)
        return Outcome(Status.OK, box)

    async def restart(self, container_id: str, *, stop_timeout: float) -> Outcome[None]:
        """Evict the pod that was looked at, by uid, and wait until another one's container runs."""
        seen, refusal = self._looked.take(container_id)
        if seen is None:
            return refusal
        if container_id.startswith(BARE):
            return failed(Status.REFUSED, f"pod {seen.name} has no controller: nobody would make it again")
        if not seen.running or seen.restarting:
            return failed(Status.UNAVAILABLE, f"pod {seen.name} is {seen.state}, not plainly running: nothing was sent")
        namespace, name = seen.name.split("/", 1)
        uid = seen.started_at_raw.split("@", 1)[0]
        began = self._monotonic()
        sent = await self._remove(namespace, name, uid, round(stop_timeout))
        if not sent.ok:
            return sent
        return await self._until_new(container_id, uid, began, stop_timeout + SCHEDULING)

    async def _remove(self, namespace: str, name: str, uid: str, grace: int) -> Outcome[None]:
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}"
        options: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "gracePeriodSeconds": grace,
        }
        try:
            if self._evict:
                eviction = {
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "metadata": {"name": name, "namespace": namespace},
                    "deleteOptions": options,
                }
                reply = await self._kube.call("POST", f"{path}/eviction", body=eviction, timeout=30.0)
            else:
                reply = await self._kube.call("DELETE", path, body=options, timeout=30.0)
        except KubeError as error:
            return failed(Status.TIMED_OUT if error.sent else Status.UNAVAILABLE, str(error))
        if reply.ok:
            return Outcome(Status.OK)
        if reply.status == 404:
            return failed(Status.NOT_FOUND, f"pod {namespace}/{name} is gone already")
        if reply.status == 409:
            return failed(Status.UNAVAILABLE, f"pod {namespace}/{name} is another one by now: nothing was done")
        if reply.status == 429:
            return failed(Status.UNAVAILABLE, f"a PodDisruptionBudget does not allow it now: {reply.words}")
        return failed(Status.REFUSED, f"the API refused: {reply.words}")

    async def _until_new(self, container_id: str, uid: str, began: float, limit: float) -> Outcome[None]:
        while (spent := self._monotonic() - began) < limit:
            found = await self._pod_of(container_id)
            if found.ok:
                pod, selector, others, version = found.get()
                box = container_of(pod, container_id, selector.pod_container, others)
                if pod["metadata"]["uid"] != uid and box.running and not box.restarting:
                    return Outcome(Status.OK, None, seconds=spent)
                await self._change(selector, version, min(WATCH_SECONDS, limit - spent))
            else:
                await self._change(self._selectors[0], "", min(WATCH_SECONDS, limit - spent))
        return failed(Status.TIMED_OUT, f"the pod was removed; no new one runs after {limit:g} s", limit)

    async def _change(self, selector: Selector, version: str, seconds: float) -> None:
        """Wait for the next change of the selector's pods, at least for the pause between two lists."""
        began = self._monotonic()
        params = {"labelSelector": selector.pods or ""}
        path = _pods_path(selector, self._kube)
        async with aclosing(self._kube.watch(path, params=params, version=version, seconds=max(PAUSE, seconds))) as changes:
            async for _ in changes:
                break
        await self._sleep(max(0.0, PAUSE - (self._monotonic() - began)))

    async def start(self, container_id: str) -> Outcome[None]:
        """Never: the pod's controller starts another."""
        return failed(Status.REFUSED, "Kubernetes starts its own pods")

    async def top(self, container_id: str) -> Outcome[tuple[Process, ...]]:
        """Not to be had without exec, which we do not ask for."""
        return failed(Status.REFUSED, "processes of a pod cannot be listed without exec")

    async def logs(self, container_id: str, *, lines: int, max_bytes: int) -> Outcome[str]:
        """The engine container's last lines."""
        found = await self._pod_of(container_id)
        if not found.ok:
            return failed(found.status, found.detail)
        pod, selector, _, _ = found.get()
        meta = pod["metadata"]
        params = {"tailLines": str(lines), "limitBytes": str(max_bytes)}
        if selector.pod_container:
            params["container"] = selector.pod_container
        path = f"/api/v1/namespaces/{quote(meta.get('namespace', 'default'))}/pods/{quote(meta['name'])}/log"
        reply = await self._get(path, params)
        return Outcome(Status.OK, str(reply.get() or "")) if reply.ok else failed(reply.status, reply.detail)

    async def events(self, container_id: str, *, since: float, until: float) -> Outcome[tuple[Event, ...]]:
        """Not told in a way that says who acted."""
        return failed(Status.REFUSED, "Kubernetes' events do not tell who restarted a container")

    async def watchdogs(self) -> Outcome[tuple[str, ...]]:
        """None are looked for: the kubelet's own restarts are seen as foreign starts."""
        return Outcome(Status.OK, ())

    async def close(self) -> None:
        """Release the connections."""
        await self._kube.close()

    async def _pod_of(self, container_id: str) -> Outcome[tuple[Pod, Selector, int, str]]:
        for selector in self._selectors:
            pods = await self._pods(selector)
            if not pods.ok:
                return failed(pods.status, pods.detail, pods.seconds)
            listed, version = pods.get()
            mine = [pod for pod in listed if identity(pod, selector) == container_id]
            if mine:
                alive = living(mine)
                newest = max(alive or mine, key=lambda p: str(p["metadata"].get("creationTimestamp", "")))
                return Outcome(Status.OK, (newest, selector, len(alive) - 1 if alive else 0, version))
        return failed(Status.NOT_FOUND, f"no pod of controller {container_id}")

    async def _pods(self, selector: Selector) -> Outcome[tuple[Sequence[Pod], str]]:
        reply = await self._get(_pods_path(selector, self._kube), {"labelSelector": selector.pods or ""})
        if not reply.ok:
            return failed(reply.status, reply.detail)
        body = reply.get()
        if not isinstance(body, Mapping) or not isinstance(body.get("items"), list):
            return failed(Status.REFUSED, "the API's answer is no list of pods")
        return Outcome(Status.OK, (body["items"], str((body.get("metadata") or {}).get("resourceVersion", ""))))

    async def _get(self, path: str, params: Mapping[str, str]) -> Outcome[Any]:
        try:
            reply: KubeReply = await self._kube.call("GET", path, params=params)
        except KubeError as error:
            self._health = RuntimeHealth(False, str(error))
            return failed(Status.UNAVAILABLE, str(error))
        self._health = RuntimeHealth(True)
        if reply.ok:
            return Outcome(Status.OK, reply.body)
        return failed(Status.NOT_FOUND if reply.status == 404 else Status.REFUSED, f"GET {path}: {reply.words}")


def _pods_path(selector: Selector, kube: Kube) -> str:
    return f"/api/v1/namespaces/{quote(selector.namespace or kube.access.namespace)}/pods"
