"""Pods as the API describes them, read as containers. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from llm_remediator.containers import Container, Match, Selector

Pod = Mapping[str, Any]
BARE = "bare/"
"""Begins the id of a pod without a controller."""


def controller(pod: Pod) -> str | None:
    """The uid of what made this pod and will make another, or None for a bare pod."""
    owners = (pod.get("metadata") or {}).get("ownerReferences") or []
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), None)


def going(pod: Pod) -> bool:
    """Whether it is being deleted already."""
    return bool((pod.get("metadata") or {}).get("deletionTimestamp"))


def finished(pod: Pod) -> bool:
    """Whether it ran to its end (an evicted or failed pod that stays listed)."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def living(pods: Sequence[Pod]) -> list[Pod]:
    """Pods that are, or will be, serving."""
    return [pod for pod in pods if not going(pod) and not finished(pod)]


def identity(pod: Pod, selector: Selector) -> str:
    """The controller's uid and the selector: it stays when a pod is replaced, and changes at a rollout.

    The selector belongs to it, because all pods of a StatefulSet have one controller.
    """
    owner = controller(pod) or f"{BARE}{pod['metadata']['uid']}"
    which = hashlib.sha256(f"{selector.namespace}/{selector.pods}".encode()).hexdigest()[:8]
    return f"{owner}.{which}"


def match(pod: Pod, selector: Selector) -> Match:
    """What a selector found."""
    meta = pod["metadata"]
    return Match(
        id=identity(pod, selector),
        name=str(meta["name"]),
        state=str((pod.get("status") or {}).get("phase", "Unknown")).lower(),
        image=next((str(c.get("image", "")) for c in (pod.get("spec") or {}).get("containers", ())), ""),
    )


def container_of(pod: Pod, container_id: str, name: str | None, others: int) -> Container:
    """One pod as a container; the incarnation is the pod's uid and its container's start.

    Args:
        pod: The newest pod of the controller.
        container_id: Its `identity`.
        name: Which of the pod's containers is the engine; None: the first.
        others: Pods of the same controller that still end.
    """
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    statuses = {str(entry.get("name")): entry for entry in status.get("containerStatuses") or ()}
    first = (spec.get("containers") or [{}])[0]
    engine = statuses.get(name or str(first.get("name"))) or {}
    state = engine.get("state") or {}
    running = state.get("running")
    ended = state.get("terminated") or (engine.get("lastState") or {}).get("terminated") or {}
    changing = going(pod) or others > 0 or (running is None and not finished(pod))
    started = str(running.get("startedAt", "")) if running else ""
    return Container(
        id=container_id,
        name=f"{meta.get('namespace', 'default')}/{meta['name']}",
        state="running" if running and not changing else "restarting" if not finished(pod) else "exited",
        running=running is not None,
        paused=False,
        restarting=changing,
        started_at=unix(started),
        started_at_raw=f"{meta['uid']}@{started}",
        finished_at=unix(str(ended.get("finishedAt", ""))),
        exit_code=ended.get("exitCode"),
        error=str(((state.get("waiting") or {}).get("reason")) or ""),
        oom_killed=ended.get("reason") == "OOMKilled",
        restart_count=int(engine.get("restartCount") or 0),
        image=str(engine.get("image") or first.get("image") or ""),
        restart_policy=str(spec.get("restartPolicy", "")),
        stop_timeout=spec.get("terminationGracePeriodSeconds"),
        # The pause container reaps zombies only where the pod shares its process namespace; the kubelet kills them all.
        init=True,
        health="healthy" if engine.get("ready") else "unhealthy",
        labels={str(k): str(v) for k, v in (meta.get("labels") or {}).items()},
        addresses=tuple(filter(None, (str(status.get("podIP") or ""), str(meta["name"])))),
        ports=tuple(int(port["containerPort"]) for c in spec.get("containers") or () for port in c.get("ports") or ()),
    )


def unix(text: str) -> float | None:
    """RFC 3339 as Unix seconds."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
