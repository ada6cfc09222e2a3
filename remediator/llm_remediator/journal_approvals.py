"""What people were asked to approve, and what they said. An answer is good for one attempt."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

from llm_remediator.history import Approval
from llm_remediator.journal_audit import put_notice
from llm_remediator.ports import Notice
from llm_remediator.rules import Mode
from llm_remediator.service import NotPossibleError, StoreError
from llm_remediator.snapshot import Decision

REPROVEN_WITHIN = 600.0
"""Seconds within which a question that nobody answered is proven again; a longer gap means that it was over meanwhile."""


def newest(db: sqlite3.Connection, target: str) -> Approval | None:
    """The newest question about a target."""
    row = db.execute("SELECT * FROM approvals WHERE target = ? ORDER BY id DESC LIMIT 1", (target,)).fetchone()
    if row is None:
        return None
    return Approval(
        id=row["id"],
        incarnation=row["incarnation"],
        remedy=row["remedy"],
        asked_at=row["asked_at"],
        proven_at=row["proven_at"],
        text=row["text"],
        approved_by=row["approved_by"],
        expires_at=row["expires_at"],
        attempt=row["attempt"],
    )


def ask(db: sqlite3.Connection, decision: Decision, incarnation: str, *, lasts: float, mode: Mode) -> None:
    """Note the question of an `awaiting_approval` decision; people are told once, however long nobody answers."""
    last = newest(db, decision.target)
    if last is not None and not last.approved_by and (last.incarnation, last.remedy) == (incarnation, decision.remedy):
        silent = decision.at - last.proven_at
        if silent < lasts:
            return
        if silent < lasts + REPROVEN_WITHIN:
            db.execute("UPDATE approvals SET proven_at = ?, text = ? WHERE id = ?", (decision.at, decision.text, last.id))
            return
    cursor = db.execute(
        "INSERT INTO approvals (target, incarnation, remedy, asked_at, proven_at, text) VALUES (?, ?, ?, ?, ?, ?)",
        (decision.target, incarnation, decision.remedy, decision.at, decision.at, decision.text),
    )
    how = f"the button on the target's page, or llm-remediator approve {decision.target} --config.file …"
    text = f"{decision.text}. To approve it: {how}"
    details = {"request": cursor.lastrowid, "remedy": decision.remedy}
    put_notice(db, Notice("awaiting_approval", decision.target, text, decision.at, mode.value, details=details))


def approve(
    db: sqlite3.Connection, target: str, *, request: int | None, by: str, at: float, lasts: float, why_not: str = ""
) -> Approval:
    """Answer the open question; while an answer holds, another changes nothing.

    `NotPossibleError` if there is none, if it is not question `request`, or with `why_not`, if the last look had none.
    """
    asked = newest(db, target)
    if asked is None or asked.attempt is not None:
        raise NotPossibleError(f"nothing awaits approval{why_not and ': '}{why_not}")
    if request is not None and request != asked.id:
        raise NotPossibleError(f"question {request} is over; look at what is asked now")
    if asked.approved_by and at < asked.expires_at:
        return asked
    if why_not or asked.approved_by:
        raise NotPossibleError(f"nothing awaits approval: {why_not or 'the approval before expired'}")
    db.execute(
        "UPDATE approvals SET approved_at = ?, approved_by = ?, expires_at = ? WHERE id = ?", (at, by, at + lasts, asked.id)
    )
    return replace(asked, approved_by=by, expires_at=at + lasts)


def use(db: sqlite3.Connection, approval: Approval, attempt: int) -> None:
    """An attempt uses an approval up, in the transaction of its intent. `StoreError` if another did."""
    cursor = db.execute("UPDATE approvals SET attempt = ? WHERE id = ? AND attempt IS NULL", (attempt, approval.id))
    if cursor.rowcount != 1:
        raise StoreError(f"approval {approval.id} was used already")


def release(db: sqlite3.Connection, attempt: int) -> None:
    """The attempt was withdrawn untouched: its approval is good until it expires."""
    db.execute("UPDATE approvals SET attempt = NULL WHERE attempt = ?", (attempt,))
