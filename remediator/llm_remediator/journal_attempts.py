"""Attempts in the journal: written before they are made, so that a crash finds out what it may have done."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from llm_remediator.history import Attempt, Phase, Result, Step
from llm_remediator.rules import RESTART

DIAGNOSTIC_LIMIT: Final = 256 * 1024
"""Bytes kept of one captured text, before compression."""
_ATTEMPT_COLUMNS: Final = frozenset(
    {"phase", "acting_at", "acted_at", "closed_at", "settled_at", "result", "detail", "aftermath", "aftermath_at"}
)
_STEP_COLUMNS: Final = frozenset({"acting_at", "starting_at", "acted_at", "detail"})


def open_attempt(
    db: sqlite3.Connection,
    target: str,
    *,
    at: float,
    simulated: bool,
    decision_id: int | None,
    remedy: str = RESTART,
    steps: Sequence[Step] = (),
) -> int:
    """Write an intent; nothing was touched yet. Returns its id."""
    cursor = db.execute(
        "INSERT INTO attempts (target, simulated, phase, decision_id, created_at, remedy) VALUES (?, ?, ?, ?, ?, ?)",
        (target, simulated, Phase.INTENT, decision_id, at, remedy),
    )
    attempt = int(cursor.lastrowid or 0)
    for step in steps:
        db.execute(
            "INSERT INTO steps (attempt, ordinal, host, container_id, name, started_before, started_before_raw,"
            " stop_timeout) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                attempt,
                step.ordinal,
                step.host,
                step.container_id,
                step.name,
                step.started_before,
                step.started_before_raw,
                step.stop_timeout,
            ),
        )
    return attempt


def update_attempt(db: sqlite3.Connection, attempt: int, **columns: Any) -> None:
    """Set columns of an attempt."""
    _update(db, "attempts", _ATTEMPT_COLUMNS, columns, "id = ?", (attempt,))


def update_step(db: sqlite3.Connection, attempt: int, ordinal: int, **columns: Any) -> None:
    """Set columns of a step."""
    _update(db, "steps", _STEP_COLUMNS, columns, "attempt = ? AND ordinal = ?", (attempt, ordinal))


def _update(
    db: sqlite3.Connection, table: str, known: frozenset[str], columns: Mapping[str, Any], where: str, key: tuple[int, ...]
) -> None:
    if not set(columns) <= known:
        raise ValueError(f"no such columns in {table}: {sorted(set(columns) - known)}")
    setters = ", ".join(f"{name} = ?" for name in columns)
    db.execute(f"UPDATE {table} SET {setters} WHERE {where}", (*columns.values(), *key))  # noqa: S608 - known names


def attempts(
    db: sqlite3.Connection, *, target: str | None = None, simulated: bool | None = None, limit: int = 200
) -> tuple[Attempt, ...]:
    """The newest attempts, oldest first."""
    rows = db.execute(
        "SELECT * FROM attempts WHERE (:target IS NULL OR target = :target)"
        " AND (:simulated IS NULL OR simulated = :simulated) ORDER BY id DESC LIMIT :limit",
        {"target": target, "simulated": simulated, "limit": limit},
    ).fetchall()
    return tuple(_attempts(db, reversed(rows)))


def unfinished(db: sqlite3.Connection, *, simulated: bool = False) -> tuple[Attempt, ...]:
    """Attempts in flight, oldest first."""
    rows = db.execute(
        "SELECT * FROM attempts WHERE phase <> ? AND simulated = ? ORDER BY id", (Phase.CLOSED, simulated)
    ).fetchall()
    return tuple(_attempts(db, rows))


def attempt_by_id(db: sqlite3.Connection, attempt: int) -> Attempt:
    """One attempt; `LookupError` if there is none."""
    rows = db.execute("SELECT * FROM attempts WHERE id = ?", (attempt,)).fetchall()
    for found in _attempts(db, rows):
        return found
    raise LookupError(f"no attempt {attempt}")


def act_times(db: sqlite3.Connection, *, since: float, simulated: bool, ignoring: int | None = None) -> tuple[float, ...]:
    """When restarts of any target were made (or simulated too), oldest first, without one attempt."""
    rows = db.execute(
        "SELECT COALESCE(acting_at, created_at) AS at FROM attempts WHERE COALESCE(acting_at, created_at) >= ?"
        " AND (simulated = 0 OR ?) AND COALESCE(result, '') <> ? AND id IS NOT ? ORDER BY at",
        (since, simulated, Result.WITHDRAWN, ignoring),
    ).fetchall()
    return tuple(row["at"] for row in rows)


def keep_diagnostics(db: sqlite3.Connection, attempt: int, captured: Mapping[str, str]) -> None:
    """Keep captured texts with the attempt; of each the end, where the cause usually is."""
    for name, text in captured.items():
        body = text.encode("utf-8", "replace")[-DIAGNOSTIC_LIMIT:]
        db.execute("INSERT OR REPLACE INTO diagnostics VALUES (?, ?, ?)", (attempt, name, zlib.compress(body)))


def diagnostics(db: sqlite3.Connection, attempt: int) -> dict[str, str]:
    """What was captured before an attempt."""
    rows = db.execute("SELECT name, body FROM diagnostics WHERE attempt = ? ORDER BY name", (attempt,)).fetchall()
    return {row["name"]: zlib.decompress(row["body"]).decode("utf-8", "replace") for row in rows}


def _attempts(db: sqlite3.Connection, rows: Iterable[sqlite3.Row]) -> Iterable[Attempt]:
    found = list(rows)
    ids = json.dumps([row["id"] for row in found])
    steps: dict[int, list[Step]] = {}
    for step in db.execute(
        "SELECT * FROM steps WHERE attempt IN (SELECT value FROM json_each(?)) ORDER BY attempt, ordinal", (ids,)
    ):
        steps.setdefault(step["attempt"], []).append(_step(step))
    for row in found:
        yield Attempt(
            id=row["id"],
            target=row["target"],
            simulated=bool(row["simulated"]),
            phase=Phase(row["phase"]),
            created_at=row["created_at"],
            result=Result(row["result"]) if row["result"] is not None else None,
            acting_at=row["acting_at"],
            acted_at=row["acted_at"],
            closed_at=row["closed_at"],
            settled_at=row["settled_at"],
            detail=row["detail"],
            remedy=row["remedy"],
            steps=tuple(steps.get(row["id"], ())),
        )


def _step(row: sqlite3.Row) -> Step:
    return Step(
        ordinal=row["ordinal"],
        host=row["host"],
        container_id=row["container_id"],
        name=row["name"],
        started_before=row["started_before"],
        started_before_raw=row["started_before_raw"],
        stop_timeout=row["stop_timeout"],
        acting_at=row["acting_at"],
        starting_at=row["starting_at"],
        acted_at=row["acted_at"],
        detail=row["detail"],
    )
