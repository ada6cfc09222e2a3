"""Snapshots as the JSON that machines read: ``/api/v1/targets``, proofs, probes. All times are Unix seconds or null."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from llm_exporter.judge import LaneVerdict
from llm_exporter.snapshot import Snapshot

Json = dict[str, Any]


def dumps(body: object) -> str:
    """JSON text; what is not a JSON number becomes null, so that every parser can read it."""
    try:
        return json.dumps(body, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(body), allow_nan=False)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, list) else value


def target(snapshot: Snapshot) -> Json:
    """One entry of the list of targets."""
    verdict = snapshot.verdict
    return {
        "name": snapshot.name,
        "url": snapshot.target.url,
        "kind": snapshot.kind,
        "version": snapshot.version,
        "model": snapshot.model,
        "labels": dict(snapshot.target.labels),
        "maintenance": snapshot.target.options.maintenance,
        "state": verdict.state.value,
        "since": snapshot.since or None,
        "reason": verdict.reason,
        "sentence": verdict.sentence,
        "progress": verdict.progress,
        "held": verdict.held,
        "up": snapshot.up,
        "live": snapshot.checks.live,
        "ready": snapshot.checks.ready,
        "last_observation": snapshot.looked_at,
        "process_started": snapshot.started_at,
        "incarnation": snapshot.incarnation,
        "restarts_seen": snapshot.restarts,
        "last_restart_seen": snapshot.restarted_at,
        "last_unserved": snapshot.unserved_at,
        "idle_verified_at": snapshot.verified_at,
        "last_progress": snapshot.last_progress_at,
        "canary_available": verdict.canary_available,
        "native_health": snapshot.native_status,
        "lanes": [_lane(snapshot, lane) for lane in verdict.lanes],
    }


def _lane(snapshot: Snapshot, lane: LaneVerdict) -> Json:
    return {
        "lane": lane.lane,
        "state": lane.state.value,
        "reason": lane.reason,
        "progress": lane.progress,
        "held": lane.held,
        "stalled_seconds": round(lane.stalled_seconds, 3),
        "bound_seconds": lane.bound.seconds if lane.bound is not None else None,
        "bound_why": lane.bound.why if lane.bound is not None else None,
        "flat_since": snapshot.unix(lane.flat_since),
        "last_progress": snapshot.unix(lane.last_progress),
    }


def target_in_full(snapshot: Snapshot) -> Json:
    """One target with its timeline, evidence and canary log."""
    return {
        **target(snapshot),
        "would_change": snapshot.verdict.would_change,
        "history": [
            {"t": change.unix, "state": change.state.value, "reason": change.reason} for change in snapshot.timeline
        ],
        "evidence": evidence(snapshot),
        "canaries": [
            {
                "t": sent.unix,
                "kind": sent.kind,
                "lane": sent.lane,
                "result": sent.result,
                "seconds": round(sent.seconds, 3),
                "status": sent.status,
                "words": sent.words,
            }
            for sent in snapshot.canary_log
        ],
    }


def evidence(snapshot: Snapshot) -> list[Json]:
    """Every series that the verdict rests on."""
    return [
        {"lane": lane.lane, "series": item.series, "value": item.value, "moved_at": snapshot.unix(item.moved_at)}
        for lane in snapshot.verdict.lanes
        for item in lane.evidence
    ]


def proof(snapshot: Snapshot) -> Json:
    """The answer to a demand for proof."""
    verdict = snapshot.verdict
    speaker = speaking_lane(snapshot)
    bound = speaker.bound if speaker is not None else None
    return {
        "target": snapshot.name,
        "state": verdict.state.value,
        "sentence": verdict.sentence,
        "reason": verdict.reason,
        "lane": verdict.lane,
        "progress": verdict.progress,
        "held": verdict.held,
        "flat_since": snapshot.unix(speaker.flat_since) if speaker is not None else None,
        "process_started": snapshot.started_at,
        "incarnation": snapshot.incarnation,
        "observed_at": snapshot.looked_at,
        "bound_seconds": bound.seconds if bound is not None else None,
        "bound_why": bound.why if bound is not None else None,
        "would_change": verdict.would_change,
        "hardware": verdict.hardware,
        "evidence": evidence(snapshot),
    }


def speaking_lane(snapshot: Snapshot) -> LaneVerdict | None:
    """The lane whose state is the target's."""
    return next((lane for lane in snapshot.verdict.lanes if lane.lane == snapshot.verdict.lane), None)


def probe(snapshot: Snapshot, which: str, *, fail_open: bool) -> tuple[bool, Json]:
    """Whether a probe passes, and its body. `which` is live, ready or startup."""
    checks: Mapping[str, bool] = {
        "live": {"not_stuck": snapshot.checks.live},
        "startup": {"started": snapshot.checks.startup},
        "ready": {"state": snapshot.checks.state_ready} | {name: not over for name, over in snapshot.checks.limits.items()},
    }[which]
    failed = sorted(name for name, passed in checks.items() if not passed)
    passes = not failed or (which == "live" and fail_open)
    body: Json = {
        "target": snapshot.name,
        "probe": which,
        "state": snapshot.verdict.state.value,
        "sentence": snapshot.verdict.sentence,
        "checks": {name: "ok" if passed else "failed" for name, passed in checks.items()},
        "failed": failed,
    }
    if which == "live" and failed and fail_open:
        body["fail_open"] = "too many targets would fail at once: a common cause is likelier, nothing is to be restarted"
    return passes, body
