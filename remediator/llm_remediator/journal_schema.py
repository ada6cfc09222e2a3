"""The journal's tables, step by step. A step that was released is never edited; a new one is added."""

from __future__ import annotations

from typing import Final

MIGRATIONS: Final[tuple[str, ...]] = (
    """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value REAL NOT NULL);
    CREATE TABLE deliveries (
        id INTEGER PRIMARY KEY, received_at REAL NOT NULL, sender TEXT NOT NULL, receiver TEXT NOT NULL,
        group_key TEXT NOT NULL, truncated INTEGER NOT NULL, alerts TEXT NOT NULL
    );
    CREATE TABLE alerts (
        target TEXT NOT NULL, fingerprint TEXT NOT NULL, name TEXT NOT NULL, firing INTEGER NOT NULL,
        seen_at REAL NOT NULL, source TEXT NOT NULL, starts_at REAL,
        PRIMARY KEY (target, fingerprint)
    );
    CREATE TABLE decisions (
        id INTEGER PRIMARY KEY, target TEXT NOT NULL, kind TEXT NOT NULL, mode TEXT NOT NULL,
        verb TEXT NOT NULL, gate TEXT NOT NULL, reason TEXT NOT NULL, text TEXT NOT NULL,
        first_at REAL NOT NULL, last_at REAL NOT NULL, count INTEGER NOT NULL DEFAULT 1,
        gates TEXT NOT NULL, evidence TEXT NOT NULL
    );
    CREATE INDEX decisions_target ON decisions (target, id);
    CREATE TABLE attempts (
        id INTEGER PRIMARY KEY, target TEXT NOT NULL, simulated INTEGER NOT NULL, phase TEXT NOT NULL,
        decision_id INTEGER REFERENCES decisions (id), created_at REAL NOT NULL, acting_at REAL, acted_at REAL,
        closed_at REAL, settled_at REAL, result TEXT, detail TEXT NOT NULL DEFAULT '',
        aftermath TEXT NOT NULL DEFAULT '', aftermath_at REAL
    );
    CREATE INDEX attempts_target ON attempts (target, id);
    CREATE TABLE steps (
        attempt INTEGER NOT NULL REFERENCES attempts (id) ON DELETE CASCADE, ordinal INTEGER NOT NULL,
        host TEXT NOT NULL, container_id TEXT NOT NULL, name TEXT NOT NULL, started_before REAL,
        started_before_raw TEXT NOT NULL, stop_timeout REAL NOT NULL, acting_at REAL, starting_at REAL,
        acted_at REAL, detail TEXT NOT NULL DEFAULT '', PRIMARY KEY (attempt, ordinal)
    );
    CREATE TABLE diagnostics (
        attempt INTEGER NOT NULL REFERENCES attempts (id) ON DELETE CASCADE, name TEXT NOT NULL,
        body BLOB NOT NULL, PRIMARY KEY (attempt, name)
    );
    CREATE TABLE latches (
        id INTEGER PRIMARY KEY, target TEXT NOT NULL, simulated INTEGER NOT NULL, at REAL NOT NULL,
        reason TEXT NOT NULL, text TEXT NOT NULL, rearm_at REAL, cleared_at REAL, cleared_by TEXT
    );
    CREATE TABLE rearms (id INTEGER PRIMARY KEY, target TEXT NOT NULL, at REAL NOT NULL, by TEXT NOT NULL);
    CREATE TABLE pauses (
        id INTEGER PRIMARY KEY, target TEXT, until REAL NOT NULL, reason TEXT NOT NULL, by TEXT NOT NULL,
        at REAL NOT NULL, ended_at REAL, ended_by TEXT
    );
    CREATE TABLE starts (
        target TEXT NOT NULL, container_id TEXT NOT NULL, started_at REAL NOT NULL, cause TEXT NOT NULL,
        state_then TEXT NOT NULL, seen_at REAL NOT NULL, PRIMARY KEY (target, container_id, started_at)
    );
    CREATE TABLE notices (
        id INTEGER PRIMARY KEY, at REAL NOT NULL, target TEXT NOT NULL, event TEXT NOT NULL, text TEXT NOT NULL,
        mode TEXT NOT NULL, decision_id INTEGER, details TEXT NOT NULL, tries INTEGER NOT NULL DEFAULT 0,
        done_at REAL
    );
    """,
    """
    ALTER TABLE attempts ADD COLUMN remedy TEXT NOT NULL DEFAULT 'restart';
    CREATE TABLE approvals (
        id INTEGER PRIMARY KEY, target TEXT NOT NULL, incarnation TEXT NOT NULL, remedy TEXT NOT NULL,
        asked_at REAL NOT NULL, proven_at REAL NOT NULL, text TEXT NOT NULL,
        approved_at REAL, approved_by TEXT NOT NULL DEFAULT '', expires_at REAL NOT NULL DEFAULT 0,
        attempt INTEGER
    );
    CREATE INDEX approvals_target ON approvals (target, id);
    """,
)
