"""Observe mode looks back: what happened after the moment at which it would have restarted."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from llm_remediator.containers import Container
from llm_remediator.history import Attempt
from llm_remediator.journal_attempts import update_attempt
from llm_remediator.policy.words import span
from llm_remediator.snapshot import Snapshot
from llm_remediator.verdicts import TargetReport

_WORKING = frozenset({"busy", "idle"})


def look_back(db: sqlite3.Connection, attempts: Sequence[Attempt], snapshot: Snapshot) -> None:
    """Write the outcome of simulated restarts that have none yet."""
    open_ones = db.execute(
        "SELECT id FROM attempts WHERE target = ? AND simulated = 1 AND aftermath = ''", (snapshot.target.name,)
    ).fetchall()
    wanted = {row["id"] for row in open_ones}
    for attempt in attempts:
        if attempt.id not in wanted:
            continue
        outcome = aftermath(
            attempt.at, snapshot.report, snapshot.containers, snapshot.now, snapshot.target.rules.verify_within
        )
        if outcome:
            update_attempt(db, attempt.id, aftermath=outcome, aftermath_at=snapshot.now)


def aftermath(
    would_act_at: float,
    report: TargetReport | None,
    containers: Sequence[Container],
    now: float,
    within: float,
) -> str:
    """In words what became of it, or empty while that is open."""
    for box in containers:
        if box.started_at is not None and box.started_at > would_act_at:
            return f"somebody else restarted it {span(box.started_at - would_act_at)} later"
    if report is not None and report.state in _WORKING:
        moved = [t for t in (report.last_progress, report.idle_verified_at) if t is not None and t > would_act_at]
        if moved:
            return f"it worked again by itself {span(min(moved) - would_act_at)} later: the restart would have been needless"
    if now - would_act_at >= within:
        return f"still {report.state if report is not None else 'without a verdict'} {span(within)} later"
    return ""
