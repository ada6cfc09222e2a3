"""Pods as targets: found by a label selector, described by annotations."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from llm_common.kube import Kube, KubeAccess, KubeError
from llm_exporter.config import NAME, KubernetesSd
from llm_exporter.discovery_sources import SourceError, engine_named
from llm_exporter.target_config import Patience, Target
from llm_exporter.urls import base_url

_log = logging.getLogger("llm.discovery")
LABEL = "stuckproof.target"


async def read_kubernetes(source: KubernetesSd, defaults: Patience) -> Sequence[Target]:
    """Pods of the selector that have an address: one list, no watch; a vanished pod goes with the discovery's grace.

    The label ``stuckproof.target`` is the name (``true``: the pod's own); the annotations ``stuckproof.port`` (else the
    container's first port), ``stuckproof.engine`` and ``stuckproof.team`` say the rest.
    """
    access = KubeAccess(source.api, source.token_file, source.ca_file) if source.api else KubeAccess.in_cluster()
    if access is None:
        raise SourceError("there is no service account here; give api, token_file and ca_file")
    namespace = source.namespace or access.namespace
    kube = Kube(access)
    try:
        path = f"/api/v1/namespaces/{quote(namespace)}/pods"
        reply = await kube.call("GET", path, params={"labelSelector": source.selector})
    except KubeError as error:
        raise SourceError(f"Kubernetes: {error}") from error
    finally:
        await kube.close()
    if not reply.ok or not isinstance(reply.body, Mapping):
        raise SourceError(f"Kubernetes: {reply.words}")
    found = []
    for pod in reply.body.get("items") or ():
        try:
            target = _of_pod(pod, defaults)
        except (SourceError, ValueError) as error:
            # One badly annotated pod must not hide the others.
            _log.warning("a pod is not watched: %s", error)
            continue
        if target is not None:
            found.append(target)
    return found


def _of_pod(pod: Mapping[str, Any], defaults: Patience) -> Target | None:
    meta, status = pod.get("metadata") or {}, pod.get("status") or {}
    address = status.get("podIP")
    if not address or meta.get("deletionTimestamp") or status.get("phase") in ("Succeeded", "Failed"):
        return None
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    named = labels.get(LABEL, "true")
    name = str(meta["name"]) if named in ("", "true") else named
    where = f"pod {meta.get('namespace')}/{meta.get('name')}"
    port = str(notes.get("stuckproof.port") or _first_port(pod) or "8000")
    if NAME.fullmatch(name) is None or not port.isdecimal():
        raise SourceError(f"{where}: {LABEL}={name!r} must be a name and stuckproof.port={port!r} a port")
    shown = {"namespace": str(meta.get("namespace", "")), "pod": str(meta["name"])}
    if "stuckproof.team" in notes:
        shown["team"] = str(notes["stuckproof.team"])
    host = f"[{address}]" if ":" in address else address
    engine = engine_named(str(notes.get("stuckproof.engine", "auto")))
    return Target(name, base_url(f"http://{host}:{port}"), engine, shown, None, defaults)


def _first_port(pod: Mapping[str, Any]) -> int | None:
    for container in (pod.get("spec") or {}).get("containers") or ():
        for port in container.get("ports") or ():
            return int(port["containerPort"])
    return None
