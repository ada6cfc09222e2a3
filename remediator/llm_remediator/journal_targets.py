"""What the journal remembers of each target: latches, pauses, starts, and the clock it was written by."""

from __future__ import annotations

import sqlite3

from llm_remediator.history import ForeignStart, History, Latch, Pause
from llm_remediator.journal_approvals import newest
from llm_remediator.journal_attempts import attempts


def history(db: sqlite3.Connection, target: str, *, simulated: bool) -> History:
    """All that the gates look at. `simulated`: observe mode, which counts what it would have done."""
    starts = db.execute(
        "SELECT * FROM (SELECT * FROM starts WHERE target = ? AND cause <> 'ours' ORDER BY started_at DESC LIMIT 100)"
        " ORDER BY started_at",
        (target,),
    ).fetchall()
    return History(
        attempts=attempts(db, target=target, simulated=None if simulated else False),
        foreign_starts=tuple(
            ForeignStart(row["container_id"], row["started_at"], row["cause"], row["state_then"]) for row in starts
        ),
        latch=latch(db, target, simulated=simulated),
        rearmed_at=rearmed_at(db, target),
        approval=newest(db, target),
    )


def latch(db: sqlite3.Connection, target: str, *, simulated: bool) -> Latch | None:
    """The latch that holds the target, a simulated one only in observe mode."""
    row = db.execute(
        "SELECT * FROM latches WHERE target = ? AND cleared_at IS NULL AND (simulated = 0 OR ?) ORDER BY simulated, id",
        (target, simulated),
    ).fetchone()
    return Latch(row["at"], row["reason"], row["text"], row["rearm_at"]) if row is not None else None


def set_latch(db: sqlite3.Connection, target: str, new: Latch, *, simulated: bool) -> bool:
    """Latch a target; False if it is latched already, so that nobody is paged twice."""
    if latch(db, target, simulated=simulated) is not None:
        return False
    db.execute(
        "INSERT INTO latches (target, simulated, at, reason, text, rearm_at) VALUES (?, ?, ?, ?, ?, ?)",
        (target, simulated, new.at, new.reason, new.text, new.rearm_at),
    )
    return True


def rearm_allowed(db: sqlite3.Connection, target: str, *, simulated: bool) -> bool:
    """Whether the next latch may come off by itself: once, until a person re-arms or it recovers."""
    row = db.execute(
        "SELECT MAX(id) AS id FROM latches WHERE target = ? AND simulated = ? AND cleared_by = 'time'",
        (target, simulated),
    ).fetchone()
    if row is None or row["id"] is None:
        return True
    at = db.execute("SELECT cleared_at FROM latches WHERE id = ?", (row["id"],)).fetchone()["cleared_at"]
    good = db.execute(
        "SELECT 1 FROM attempts WHERE target = :target AND result = 'recovered' AND settled_at > :at"
        " UNION SELECT 1 FROM rearms WHERE target = :target AND at > :at",
        {"target": target, "at": at},
    ).fetchone()
    return good is not None


def clear_latch(db: sqlite3.Connection, target: str, *, at: float, by: str) -> bool:
    """Take every latch of a target off. False if there was none."""
    cursor = db.execute(
        "UPDATE latches SET cleared_at = ?, cleared_by = ? WHERE target = ? AND cleared_at IS NULL", (at, by, target)
    )
    return cursor.rowcount > 0


def clear_due_latch(db: sqlite3.Connection, target: str, *, at: float) -> bool:
    """Take off the latches whose time has come. False if there was none."""
    cursor = db.execute(
        "UPDATE latches SET cleared_at = :at, cleared_by = 'time'"
        " WHERE target = :target AND cleared_at IS NULL AND rearm_at IS NOT NULL AND rearm_at <= :at",
        {"at": at, "target": target},
    )
    return cursor.rowcount > 0


def rearm(db: sqlite3.Connection, target: str, *, at: float, by: str) -> None:
    """A person forgives what was: failures, budget and foreign restarts count anew; the clock is believed."""
    clear_latch(db, target, at=at, by=by)
    db.execute("INSERT INTO rearms (target, at, by) VALUES (?, ?, ?)", (target, at, by))
    db.execute("INSERT OR REPLACE INTO meta VALUES ('newest_seen', ?)", (at,))


def rearmed_at(db: sqlite3.Connection, target: str) -> float | None:
    """When a person last re-armed it."""
    row = db.execute("SELECT MAX(at) AS at FROM rearms WHERE target = ?", (target,)).fetchone()
    return row["at"] if row is not None else None


def pause(db: sqlite3.Connection, new: Pause, *, at: float) -> None:
    """Pause one target or all; takes the place of the pause before it."""
    resume(db, new.target, at=at, by=new.by)
    db.execute(
        "INSERT INTO pauses (target, until, reason, by, at) VALUES (?, ?, ?, ?, ?)",
        (new.target, new.until, new.reason, new.by, at),
    )


def resume(db: sqlite3.Connection, target: str | None, *, at: float, by: str) -> bool:
    """End the pause of a target, or the one of all. False if there was none."""
    cursor = db.execute(
        "UPDATE pauses SET ended_at = ?, ended_by = ? WHERE target IS ? AND ended_at IS NULL AND until > ?",
        (at, by, target, at),
    )
    return cursor.rowcount > 0


def pauses(db: sqlite3.Connection, *, at: float) -> tuple[Pause, ...]:
    """Pauses in force."""
    rows = db.execute("SELECT * FROM pauses WHERE ended_at IS NULL AND until > ?", (at,)).fetchall()
    return tuple(Pause(row["target"], row["until"], row["reason"], row["by"]) for row in rows)


def last_start(db: sqlite3.Connection, target: str, container_id: str) -> float | None:
    """The newest start that we know of this container; None if we never saw it."""
    row = db.execute(
        "SELECT MAX(started_at) AS at FROM starts WHERE target = ? AND container_id = ?", (target, container_id)
    ).fetchone()
    return row["at"] if row is not None else None


def seen_start(db: sqlite3.Connection, target: str, start: ForeignStart, *, at: float) -> None:
    """A start of the target's container, `cause` `ours` for our own."""
    db.execute(
        "INSERT OR IGNORE INTO starts VALUES (?, ?, ?, ?, ?, ?)",
        (target, start.container_id, start.started_at, start.cause, start.state_then, at),
    )


def count_foreign(db: sqlite3.Connection) -> dict[str, int]:
    """Starts by others, for each target."""
    rows = db.execute(
        "SELECT target, COUNT(*) AS n FROM starts WHERE cause IN ('api', 'policy', 'unknown') GROUP BY target"
    ).fetchall()
    return {row["target"]: row["n"] for row in rows}


def remember(db: sqlite3.Connection, key: str, value: float) -> None:
    """Keep a number, e.g. when the breaker was last open."""
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def remembered(db: sqlite3.Connection, key: str) -> float | None:
    """A number kept before."""
    row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return row["value"] if row is not None else None


def touch(db: sqlite3.Connection, at: float) -> None:
    """Remember the newest wall time ever seen; a clock that later shows less is not believed."""
    db.execute(
        "INSERT INTO meta VALUES ('newest_seen', :at) ON CONFLICT (key) DO UPDATE SET value = MAX(value, :at)", {"at": at}
    )
