"""An HTTP server that behaves as the Kubernetes API does where it matters to us, and refuses what RBAC would refuse."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

TOKEN = "account-token"
ALLOWED = (
    ("GET", r"/version"),
    ("GET", r"/api/v1/namespaces/[^/]+/pods"),
    ("GET", r"/api/v1/namespaces/[^/]+/pods/[^/]+/log"),
    ("POST", r"/api/v1/namespaces/[^/]+/pods/[^/]+/eviction"),
    ("DELETE", r"/api/v1/namespaces/[^/]+/pods/[^/]+"),
    ("GET", r"/apis/coordination.k8s.io/v1/namespaces/[^/]+/leases/[^/]+"),
    ("POST", r"/apis/coordination.k8s.io/v1/namespaces/[^/]+/leases"),
    ("PUT", r"/apis/coordination.k8s.io/v1/namespaces/[^/]+/leases/[^/]+"),
)
"""What deploy/kubernetes/remediator/rbac.yaml grants, and DELETE for ``evict: false``; a test compares the two."""


@dataclass
class Cluster:
    """Pods of one namespace and the controllers that make them."""

    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    leases: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    version: int = 1
    budget_allows: bool = True
    remakes: bool = True
    watches: bool = True
    continues: bool = True
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    made: int = 0

    def pod(self, name: str, owner: str | None = "rs-1", app: str = "vllm", **labels: str) -> dict[str, Any]:
        self.made += 1
        started = f"2026-11-30T03:{self.made % 60:02d}:00Z"
        pod = {
            "metadata": {
                "name": name, "namespace": "llm", "uid": f"uid-{self.made}", "creationTimestamp": started,
                "labels": {"app": app, **labels},
                "ownerReferences": [{"uid": owner, "controller": True, "kind": "ReplicaSet"}] if owner else [],
            },
            "spec": {
                "containers": [{"name": "vllm", "image": "vllm:1", "ports": [{"containerPort": 8000}]}, {"name": "side"}],
                "terminationGracePeriodSeconds": 60, "restartPolicy": "Always",
            },
            "status": {
                "phase": "Running", "podIP": f"10.1.0.{self.made}",
                "containerStatuses": [
                    {"name": "side", "ready": True, "state": {"running": {"startedAt": "2026-11-30T01:00:00Z"}}},
                    {"name": "vllm", "ready": True, "restartCount": 0, "state": {"running": {"startedAt": started}}},
                ],
            },
        }  # fmt: skip
        self.pods[name] = pod
        self._change()
        return pod

    def _change(self) -> None:
        self.version += 1
        self.changed.set()
        self.changed = asyncio.Event()

    def remove(self, name: str, options: dict[str, Any]) -> web.Response:
        pod = self.pods.get(name)
        if pod is None:
            return answer(404, "NotFound")
        wanted = (options.get("preconditions") or {}).get("uid")
        assert wanted, "a removal without the uid as precondition could hit another pod"
        assert isinstance(options.get("gracePeriodSeconds"), int)
        if wanted != pod["metadata"]["uid"]:
            return answer(409, "Conflict: the UID in the precondition does not match")
        if not self.budget_allows:
            return answer(429, "Cannot evict pod as it would violate the pod's disruption budget.")
        self.removed.append(wanted)
        del self.pods[name]
        owners = pod["metadata"]["ownerReferences"]
        if owners and self.remakes:
            self.pod(f"{name}-n", owners[0]["uid"], **pod["metadata"]["labels"])
        self._change()
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)


def answer(status: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "message": message}, status=status)


def chosen(pod: dict[str, Any], selector: str) -> bool:
    labels = pod["metadata"]["labels"]
    return all(labels.get(key) == value for key, value in (pair.split("=", 1) for pair in selector.split(",") if pair))


def app_of(cluster: Cluster) -> web.Application:
    async def handle(request: web.Request) -> web.StreamResponse:
        cluster.calls.append((request.method, request.path))
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return answer(401, "Unauthorized")
        if not any(request.method == verb and re.fullmatch(path, request.path) for verb, path in ALLOWED):
            return answer(403, f"forbidden: {request.method} {request.path}")
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.33.0"})
        parts = request.path.split("/")
        if "leases" in parts:
            return await leases(request)
        if request.path.endswith("/log"):
            assert {"tailLines", "limitBytes"} <= set(request.query)
            return web.Response(text="last line\n")
        if request.path.endswith("/eviction"):
            body = await request.json()
            assert (body["apiVersion"], body["kind"]) == ("policy/v1", "Eviction")
            return cluster.remove(parts[-2], body["deleteOptions"])
        if request.method == "DELETE":
            return cluster.remove(parts[-1], await request.json())
        return await pods(request)

    async def pods(request: web.Request) -> web.StreamResponse:
        selector = request.query.get("labelSelector", "")
        assert selector, "a list without a selector would be every pod"
        if request.query.get("watch") != "1":
            items = [pod for pod in cluster.pods.values() if chosen(pod, selector)]
            begin, limit = int(request.query.get("continue", "0")), int(request.query.get("limit", len(items)))
            if begin and not cluster.continues:
                return answer(410, "Expired: the provided continue parameter is too old")
            meta = {"resourceVersion": str(cluster.version)}
            if begin + limit < len(items):
                meta["continue"] = str(begin + limit)
            return web.json_response({"metadata": meta, "items": items[begin : begin + limit]})
        if not cluster.watches:
            return answer(410, "Expired: too old resource version")
        response = web.StreamResponse()
        await response.prepare(request)
        if request.query["resourceVersion"] == str(cluster.version):
            try:
                await asyncio.wait_for(cluster.changed.wait(), float(request.query["timeoutSeconds"]))
            except TimeoutError:
                return response
        for pod in cluster.pods.values():
            if chosen(pod, selector):
                await response.write(json.dumps({"type": "MODIFIED", "object": pod}).encode() + b"\n")
        return response

    async def leases(request: web.Request) -> web.Response:
        if request.method == "POST":
            body = await request.json()
            name = body["metadata"]["name"]
            if name in cluster.leases:
                return answer(409, "AlreadyExists")
        else:
            name = request.path.rsplit("/", 1)[1]
            known = cluster.leases.get(name)
            if known is None:
                return answer(404, "NotFound")
            if request.method == "GET":
                return web.json_response(known)
            body = await request.json()
            if body["metadata"].get("resourceVersion") != known["metadata"]["resourceVersion"]:
                return answer(409, "Conflict: the object has been modified")
        cluster.version += 1
        body["metadata"]["resourceVersion"] = str(cluster.version)
        cluster.leases[name] = body
        return web.json_response(body)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    return app


@asynccontextmanager
async def served(cluster: Cluster) -> AsyncIterator[str]:
    runner = web.AppRunner(app_of(cluster))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
