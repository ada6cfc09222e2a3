"""Pods as targets: found by a label selector, described by annotations."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from llm_common.kube import Kube, KubeAccess, KubeError
from llm_exporter.discovered import DEFAULT_PORT, LABEL, Found, SourceError, Template
from llm_exporter.discovery_config import KubernetesSd
from llm_exporter.target_config import Target

PIECE = 200
"""Pods in one answer: thousands in one would hold the event loop while they are parsed."""


async def read_kubernetes(source: KubernetesSd, template: Template) -> Found:
    """Pods of the selector that have an address: lists, no watch; a vanished pod goes with the discovery's grace.

    The label ``stuckproof.target`` is the name (``true``: the pod's own); the annotations ``stuckproof.port`` (else the
    container's first port), ``stuckproof.engine`` and ``stuckproof.team`` say the rest.
    """
    access = KubeAccess(source.api, source.token_file, source.ca_file) if source.api else KubeAccess.in_cluster()
    if access is None:
        raise SourceError("there is no service account here; give api, token_file and ca_file")
    found: list[Target] = []
    problems: list[str] = []
    async with aclosing(_pods(access, source)) as pods:
        async for pod in pods:
            try:
                found.append(_of_pod(pod, template))
            except ValueError as error:
                problems.append(f"pod {pod['metadata'].get('namespace')}/{pod['metadata']['name']}: {error}")
    return Found(found, problems)


async def _pods(access: KubeAccess, source: KubernetesSd) -> AsyncGenerator[Mapping[str, Any], None]:
    kube = Kube(access)
    path = f"/api/v1/namespaces/{quote(source.namespace or access.namespace)}/pods"
    params = {"labelSelector": source.selector, "limit": str(PIECE)}
    try:
        while True:
            reply = await kube.call("GET", path, params=params)
            if not reply.ok or not isinstance(reply.body, Mapping):
                raise SourceError(f"Kubernetes: {reply.words}")
            for pod in filter(_serves, reply.body.get("items") or ()):
                yield pod
            params["continue"] = (reply.body.get("metadata") or {}).get("continue") or ""
            if not params["continue"]:
                return
    except KubeError as error:
        raise SourceError(f"Kubernetes: {error}") from error
    finally:
        await kube.close()


def _serves(pod: Mapping[str, Any]) -> bool:
    """Whether it has an address and is neither at its end nor going there."""
    meta, status = pod["metadata"], pod.get("status") or {}
    ended = meta.get("deletionTimestamp") or status.get("phase") in ("Succeeded", "Failed")
    return bool(status.get("podIP")) and not ended


def _of_pod(pod: Mapping[str, Any], template: Template) -> Target:
    meta = pod["metadata"]
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    shown = {"namespace": str(meta.get("namespace", "")), "pod": str(meta["name"])}
    port = _first_port(pod) or DEFAULT_PORT
    return template.workload(meta["name"], pod["status"]["podIP"], labels.get(LABEL, "true"), notes, shown, port)


def _first_port(pod: Mapping[str, Any]) -> str | None:
    for container in (pod.get("spec") or {}).get("containers") or ():
        for port in container.get("ports") or ():
            return str(port["containerPort"])
    return None
