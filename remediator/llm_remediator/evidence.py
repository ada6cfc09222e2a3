"""The values a decision rested on, for the audit. Pure."""

from __future__ import annotations

from typing import Any

from llm_remediator.snapshot import Snapshot


def evidence(snapshot: Snapshot) -> dict[str, Any]:
    """The values a decision rested on, for the audit."""
    found: dict[str, Any] = {"mode": snapshot.mode.value}
    if snapshot.report is not None:
        found |= {"state": snapshot.report.state, "sentence": snapshot.report.sentence, "held": snapshot.report.held}
    if snapshot.members:
        found["containers"] = [
            {"id": c.id, "name": c.name, "state": c.state, "started_at": c.started_at} for c in snapshot.containers
        ]
    if snapshot.alert is not None:
        found["alert"] = {
            "name": snapshot.alert.name,
            "source": snapshot.alert.source,
            "fingerprint": snapshot.alert.fingerprint,
            "seen_at": snapshot.alert.seen_at,
        }
    if snapshot.proof is not None and snapshot.proof.outcome.ok:
        proof = snapshot.proof.outcome.get()
        found["proof"] = {
            "state": proof.state,
            "sentence": proof.sentence,
            "lane": proof.lane,
            "held": proof.held,
            "flat_since": proof.flat_since,
            "observed_at": proof.observed_at,
            "bound_seconds": proof.bound_seconds,
            "hardware": proof.hardware,
            "evidence": [dict(e) for e in proof.evidence][:50],
        }
    if snapshot.witnesses is not None:
        found["alertmanagers"] = {w.url: "firing" if w.firing else w.detail or "not firing" for w in snapshot.witnesses}
    return found
