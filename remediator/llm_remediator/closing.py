"""The end of an attempt, in one transaction: its result, the latch it earned, and what people are told."""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass

from llm_remediator.history import COUNTED_AS_GOOD, Attempt, Latch, Phase, Result
from llm_remediator.journal_approvals import release
from llm_remediator.journal_attempts import attempt_by_id, open_attempt, update_attempt
from llm_remediator.journal_audit import put_notice, record_decision
from llm_remediator.journal_targets import history, rearm_allowed, set_latch, touch
from llm_remediator.policy import budget_left
from llm_remediator.policy.words import span
from llm_remediator.ports import Notice
from llm_remediator.rules import Mode, Rules
from llm_remediator.snapshot import Decision

FOR_PEOPLE_ONLY = frozenset({"wrong_container"})
"""Latches that time does not mend: they stay until a person re-arms."""
_SILENT = frozenset({Result.WITHDRAWN, Result.SIMULATED})


@dataclass(frozen=True, slots=True)
class Closing:
    """How an attempt ends. `latch`: the latch's reason, empty for none."""

    result: Result
    text: str
    latch: str = ""


class Tally:
    """Counts since this process started, for `/metrics`."""

    def __init__(self) -> None:
        self.decisions: Counter[tuple[str, str, str]] = Counter()
        self.actions: Counter[tuple[str, str]] = Counter()
        self.downtimes: dict[str, list[float]] = {}

    def closed(self, attempt: Attempt) -> None:
        """Count an attempt's result, and its downtime if work flows again."""
        if attempt.result is None:
            return
        self.actions[attempt.target, attempt.result.value] += 1
        if attempt.result is Result.VERIFIED and attempt.closed_at is not None:
            self.downtimes.setdefault(attempt.target, []).append(attempt.closed_at - attempt.at)


def close(db: sqlite3.Connection, attempt_id: int, closing: Closing, *, rules: Rules, mode: Mode, at: float) -> Attempt:
    """Close an attempt; closing it again changes nothing. Returns it as it is now."""
    attempt = attempt_by_id(db, attempt_id)
    if not attempt.open:
        return attempt
    update_attempt(db, attempt_id, phase=Phase.CLOSED, result=closing.result, closed_at=at, detail=closing.text)
    attempt = attempt_by_id(db, attempt_id)
    touch(db, at)
    if closing.result is Result.WITHDRAWN:
        release(db, attempt_id)
    latch, text = closing.latch, closing.text
    if not latch and closing.result not in COUNTED_AS_GOOD and closing.result not in _SILENT:
        ids = frozenset(s.container_id for s in attempt.steps)
        past = history(db, attempt.target, simulated=attempt.simulated)
        if budget_left(past, rules, at, ids) == 0:
            latch = "budget"
            text = f"{closing.text}; {rules.budget.restarts} starts in {span(rules.budget.per)} did not mend it"
    if latch and latch_target(db, attempt.target, latch, text, rules=rules, simulated=attempt.simulated, at=at):
        event = "wrong_container" if latch == "wrong_container" else "latched"
        _tell(db, event, attempt, f"given up: {text}", mode, at)
    elif closing.result not in _SILENT:
        _tell(db, closing.result.value, attempt, closing.text, mode, at)
    return attempt


def latch_target(
    db: sqlite3.Connection, target: str, reason: str, text: str, *, rules: Rules, simulated: bool, at: float
) -> bool:
    """Latch a target; False if it is latched already. It comes off by itself once, after `rearm_after`."""
    by_itself = rules.rearm_after > 0 and reason not in FOR_PEOPLE_ONLY and rearm_allowed(db, target, simulated=simulated)
    new = Latch(at=at, reason=reason, text=text, rearm_at=at + rules.rearm_after if by_itself else None)
    return set_latch(db, target, new, simulated=simulated)


def simulate(db: sqlite3.Connection, decision: Decision, decision_id: int) -> Attempt:
    """Observe mode: note when it would have been restarted; cooldown and budget count it from then on."""
    attempt_id = open_attempt(
        db, decision.target, at=decision.at, simulated=True, decision_id=decision_id, remedy=decision.remedy
    )
    text = "mode observe: nothing was done"
    update_attempt(db, attempt_id, phase=Phase.CLOSED, result=Result.SIMULATED, closed_at=decision.at, detail=text)
    return attempt_by_id(db, attempt_id)


def settle_successes(
    db: sqlite3.Connection, attempts: tuple[Attempt, ...], rules: Rules, mode: Mode, *, ill: bool, at: float
) -> list[Attempt]:
    """`verified` becomes `recovered` after `min_healthy`, or `relapsed` if it is ill before that."""
    settled = []
    for index, attempt in enumerate(attempts):
        good = attempt.result in (Result.VERIFIED, Result.RECOVERED_UNVERIFIED)
        if not good or attempt.settled_at is not None or attempt.closed_at is None:
            continue
        later = next((a for a in attempts[index + 1 :] if a.counts), None)
        fell_at = later.at if later is not None else at if ill else None
        if fell_at is not None and fell_at - attempt.closed_at < rules.min_healthy:
            text = f"{attempt.detail}; ill again after {span(fell_at - attempt.closed_at)}"
            update_attempt(db, attempt.id, settled_at=at, detail=text, result=Result.RELAPSED)
            settled.append(attempt_by_id(db, attempt.id))
            _tell(db, "relapsed", settled[-1], text, mode, at)
        elif fell_at is not None or at - attempt.closed_at >= rules.min_healthy:
            update_attempt(db, attempt.id, settled_at=at)
            if attempt.result is Result.VERIFIED:
                update_attempt(db, attempt.id, result=Result.RECOVERED)
                settled.append(attempt_by_id(db, attempt.id))
    return settled


def stand_down(db: sqlite3.Connection, decision: Decision, mode: Mode) -> None:
    """Tell people once a day that somebody else restarts the target."""
    told = db.execute(
        "SELECT 1 FROM notices WHERE target = ? AND event = 'foreign_owner' AND at > ?",
        (decision.target, decision.at - 86400.0),
    ).fetchone()
    if told is None:
        put_notice(db, Notice("foreign_owner", decision.target, decision.text, decision.at, mode.value))


def latch_by_decision(db: sqlite3.Connection, decision: Decision, rules: Rules, mode: Mode) -> None:
    """A gate said that no more attempts shall be made."""
    simulated = mode is Mode.OBSERVE
    new = latch_target(db, decision.target, decision.reason, decision.text, rules=rules, simulated=simulated, at=decision.at)
    if new and not simulated:
        put_notice(db, Notice("latched", decision.target, f"given up: {decision.text}", decision.at, mode.value))


def record(db: sqlite3.Connection, decision: Decision, mode: Mode, kind: str) -> int:
    """Store a decision of a check inside an attempt."""
    return record_decision(db, decision, mode=mode.value, kind=kind, repeat=False)[0]


def _tell(db: sqlite3.Connection, event: str, attempt: Attempt, text: str, mode: Mode, at: float) -> None:
    details = {
        "attempt": attempt.id,
        "result": attempt.result,
        "acting_at": attempt.acting_at,
        "containers": [s.name for s in attempt.steps],
    }
    put_notice(db, Notice(event, attempt.target, text, at, mode.value, decision_of(db, attempt.id), details))


def decision_of(db: sqlite3.Connection, attempt_id: int) -> int | None:
    """The decision that an attempt carries out."""
    row = db.execute("SELECT decision_id FROM attempts WHERE id = ?", (attempt_id,)).fetchone()
    return row["decision_id"] if row is not None else None
