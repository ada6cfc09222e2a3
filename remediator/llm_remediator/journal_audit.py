"""What came in, what was decided and why, and what people are told: the journal's audit side."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llm_remediator.ports import Notice
from llm_remediator.service import DecisionView, Delivery, GateView
from llm_remediator.snapshot import Alert, Decision, GateResult

NOTICE_LASTS = 86400.0
"""Seconds for which a notice is tried: whoever was away for a night still learns of a latch."""
DELIVERIES_KEPT = 100_000
"""Webhook bodies kept at most: a storm must not fill the disk."""
Db = sqlite3.Connection


def store_delivery(db: sqlite3.Connection, delivery: Delivery, known: frozenset[str], *, at: float) -> None:
    """A webhook body, and the state of each alert in it that names a target of ours."""
    body = [
        {"status": a.status, "labels": dict(a.labels), "fingerprint": a.fingerprint, "starts_at": a.starts_at}
        for a in delivery.alerts
    ]
    db.execute(
        "INSERT INTO deliveries (received_at, sender, receiver, group_key, truncated, alerts) VALUES (?, ?, ?, ?, ?, ?)",
        (at, delivery.sender, delivery.receiver, delivery.group_key, delivery.truncated, _json(body)),
    )
    for alert in delivery.alerts:
        if alert.target in known and alert.labels.get("remediate") == "restart":
            store_alert(
                db,
                Alert(
                    target=alert.target,
                    name=alert.labels.get("alertname", ""),
                    firing=alert.status == "firing",
                    seen_at=at,
                    source="webhook",
                    fingerprint=alert.fingerprint,
                    starts_at=alert.starts_at,
                ),
            )


def store_alert(db: sqlite3.Connection, alert: Alert) -> None:
    """The newest word on one alert."""
    db.execute(
        "INSERT OR REPLACE INTO alerts VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            alert.target,
            alert.fingerprint,
            alert.name,
            alert.firing,
            alert.seen_at,
            alert.source,
            alert.starts_at,
        ),
    )


def level(db: sqlite3.Connection, alerts: Iterable[Alert], *, at: float) -> None:
    """All Alertmanagers were read: these fire; every other alert is over."""
    db.execute("UPDATE alerts SET firing = 0, seen_at = ? WHERE firing = 1", (at,))
    for alert in alerts:
        store_alert(db, alert)


def alerts(db: sqlite3.Connection) -> dict[str, Alert]:
    """For each target the alert that speaks for it: the newest firing one, else the newest."""
    rows = db.execute("SELECT * FROM alerts ORDER BY firing, seen_at").fetchall()
    return {
        row["target"]: Alert(
            target=row["target"],
            name=row["name"],
            firing=bool(row["firing"]),
            seen_at=row["seen_at"],
            source=row["source"],
            fingerprint=row["fingerprint"],
            starts_at=row["starts_at"],
        )
        for row in rows
    }


def record_decision(
    db: sqlite3.Connection,
    decision: Decision,
    *,
    mode: str,
    gates: Sequence[GateResult] = (),
    kind: str = "alert",
    repeat: bool = True,
) -> tuple[int, bool]:
    """Store a decision. The same one again only counts (`repeat`). Returns its id and whether it is new."""
    last = db.execute(
        "SELECT id, verb, gate, reason, mode, kind FROM decisions WHERE target = ? ORDER BY id DESC LIMIT 1",
        (decision.target,),
    ).fetchone()
    same = (decision.verb, decision.gate, decision.reason, mode, kind)
    if repeat and last is not None and tuple(last)[1:] == tuple(str(part) for part in same):
        db.execute(
            "UPDATE decisions SET last_at = ?, count = count + 1, text = ?, evidence = ? WHERE id = ?",
            (decision.at, decision.text, _json(decision.evidence), last["id"]),
        )
        return int(last["id"]), False
    cursor = db.execute(
        "INSERT INTO decisions (target, kind, mode, verb, gate, reason, text, first_at, last_at, gates, evidence)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            decision.target,
            kind,
            mode,
            decision.verb,
            decision.gate,
            decision.reason,
            decision.text,
            decision.at,
            decision.at,
            _json([[g.gate, g.answer.passed, g.answer.text] for g in gates]),
            _json(decision.evidence),
        ),
    )
    return int(cursor.lastrowid or 0), True


def decisions(
    db: sqlite3.Connection, *, target: str | None = None, since: float | None = None, limit: int = 100
) -> list[DecisionView]:
    """Newest first, with what became of an act."""
    rows = db.execute(
        "SELECT d.*, a.result, a.phase, a.aftermath FROM decisions d LEFT JOIN attempts a ON a.decision_id = d.id"
        " WHERE (:target IS NULL OR d.target = :target) AND (:since IS NULL OR d.last_at >= :since)"
        " ORDER BY d.id DESC LIMIT :limit",
        {"target": target, "since": since, "limit": limit},
    ).fetchall()
    return [
        DecisionView(
            id=row["id"],
            at=row["first_at"],
            target=row["target"],
            decision=row["verb"],
            reason=row["reason"],
            text=row["text"],
            mode=row["mode"],
            outcome=row["aftermath"] or row["result"] or row["phase"] or "",
            gates=tuple(GateView(name, ok, text) for name, ok, text in json.loads(row["gates"])),
            evidence={
                **json.loads(row["evidence"]),
                "gate": row["gate"],
                "kind": row["kind"],
                "count": row["count"],
                "last_at": row["last_at"],
            },
        )
        for row in rows
    ]


def put_notice(db: sqlite3.Connection, notice: Notice) -> None:
    """Queue a notice in the same transaction as what it tells, so that a crash loses neither."""
    db.execute(
        "INSERT INTO notices (at, target, event, text, mode, decision_id, details) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            notice.at,
            notice.target,
            notice.event,
            notice.text,
            notice.mode,
            notice.decision_id,
            _json(notice.details),
        ),
    )


def pending_notices(db: sqlite3.Connection) -> list[tuple[int, Notice]]:
    """Notices not delivered yet, oldest first."""
    rows = db.execute("SELECT * FROM notices WHERE done_at IS NULL ORDER BY id LIMIT 100").fetchall()
    return [
        (
            row["id"],
            Notice(
                event=row["event"],
                target=row["target"],
                text=row["text"],
                at=row["at"],
                mode=row["mode"],
                decision_id=row["decision_id"],
                details=json.loads(row["details"]),
            ),
        )
        for row in rows
    ]


def notice_tried(db: sqlite3.Connection, notice: int, *, at: float, delivered: bool) -> bool:
    """Note one try; a notice older than `NOTICE_LASTS` is given up. Returns whether it was given up."""
    db.execute("UPDATE notices SET tries = tries + 1 WHERE id = ?", (notice,))
    row = db.execute("SELECT at FROM notices WHERE id = ?", (notice,)).fetchone()
    over = row is None or at - row["at"] >= NOTICE_LASTS
    if delivered or over:
        db.execute("UPDATE notices SET done_at = ? WHERE id = ?", (at, notice))
    return bool(over and not delivered)


def prune(db: sqlite3.Connection, *, at: float, keep: float) -> None:
    """Drop what is older than `keep` seconds (bodies and captured texts sooner); never what is in flight."""
    db.execute("DELETE FROM deliveries WHERE received_at < ?", (at - min(keep, 7 * 86400.0),))
    db.execute("DELETE FROM deliveries WHERE id <= (SELECT MAX(id) FROM deliveries) - ?", (DELIVERIES_KEPT,))
    db.execute(
        "DELETE FROM diagnostics WHERE attempt IN (SELECT id FROM attempts WHERE created_at < ?)",
        (at - min(keep, 30 * 86400.0),),
    )
    db.execute("DELETE FROM attempts WHERE created_at < ? AND closed_at IS NOT NULL", (at - keep,))
    db.execute(
        "DELETE FROM decisions WHERE last_at < ? AND id NOT IN"
        " (SELECT decision_id FROM attempts WHERE decision_id IS NOT NULL)",
        (at - keep,),
    )
    db.execute("DELETE FROM notices WHERE done_at < ?", (at - keep,))
    db.execute("DELETE FROM starts WHERE started_at < ?", (at - keep,))
    db.execute("DELETE FROM approvals WHERE proven_at < ?", (at - keep,))
    db.execute("DELETE FROM pauses WHERE until < ?", (at - keep,))
    db.execute("DELETE FROM latches WHERE cleared_at < ?", (at - keep,))
    db.execute("DELETE FROM alerts WHERE seen_at < ? AND (firing = 0 OR seen_at < ?)", (at - 86400.0, at - keep))


def _json(value: Mapping[str, Any] | Sequence[Any]) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)
