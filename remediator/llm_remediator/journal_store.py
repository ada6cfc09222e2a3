"""The journal's file: one owner, full durability, and an honest word when it cannot be used.

A fault is never read as "nothing happened": while there is one, every call raises `StoreError`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from llm_remediator.journal_schema import MIGRATIONS
from llm_remediator.service import StoreError

_WRITE = "let this user write the file and its folder; it is tried again by itself"
_ROOM = "free some room on its disk; it is tried again by itself"
_REMEDIES = {
    sqlite3.SQLITE_READONLY: _WRITE,
    sqlite3.SQLITE_CANTOPEN: _WRITE,
    sqlite3.SQLITE_PERM: _WRITE,
    sqlite3.SQLITE_FULL: _ROOM,
    sqlite3.SQLITE_IOERR: "look at its disk; it is tried again by itself",
    sqlite3.SQLITE_BUSY: "another program holds the file; close it",
    sqlite3.SQLITE_LOCKED: "another program holds the file; close it",
}
_UNREADABLE = "it is no journal, or a broken one: move it away and restart llm-remediator"
_READING = {
    sqlite3.SQLITE_CANTOPEN: "read it as the user that runs llm-remediator: its -wal and -shm files are needed too",
    sqlite3.SQLITE_BUSY: "its owner is busy; try again",
}
_CORRUPT = "{path} is corrupt ({problem}); nothing is restarted until it is moved away and this process restarted"


class JournalLockedError(Exception):
    """Another process owns this journal."""


class JournalStore:
    """Opens, locks and migrates the SQLite file; remembers why it cannot be used. For one thread."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.fault = ""
        self.corrupt = False
        """A corrupt file stays unusable until a person moves it away and restarts us."""
        self._connection: sqlite3.Connection | None = None
        self._lock: int | None = None

    def connection(self) -> sqlite3.Connection:
        """The open connection; opens it if need be. `StoreError` with the reason, `JournalLockedError`."""
        if self._connection is not None:
            return self._connection
        if self.corrupt:
            raise StoreError(self.fault)
        try:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            self._connection = self._open()
        except OSError as error:
            remedy = _ROOM if error.errno == errno.ENOSPC else _WRITE
            raise self.failed(f"{self.path}: {error.strerror or error}; {remedy}") from error
        except sqlite3.Error as error:
            raise self.failed_by(error) from error
        self.fault = ""
        return self._connection

    def failed(self, why: str) -> StoreError:
        """Note a fault and close, so that the next call opens anew; returns the error to raise."""
        self.fault = f"the journal cannot be used: {why}"
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()
        return StoreError(self.fault)

    def failed_by(self, error: sqlite3.Error) -> StoreError:
        """`failed`, telling corruption from what may pass (a full disk, a lock)."""
        code = _code(error)
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            self.corrupt = True
            return self.failed(_CORRUPT.format(path=self.path, problem=error))
        return self.failed(f"{self.path}: {error}; {_REMEDIES.get(code, 'see that nothing else uses the file')}")

    def close(self) -> None:
        """Close the file and give the lock back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
            os.close(lock)
            raise JournalLockedError(
                f"{self.path} belongs to another llm-remediator (process {owner or 'unknown'}); "
                "one target has one owner: stop that one, or give this one a journal and targets of its own"
            ) from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        self._lock = lock

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=5.0)
        try:
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA foreign_keys=ON")
            problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if problem != "ok":
                self.corrupt = True
                raise self.failed(_CORRUPT.format(path=self.path, problem=problem))
            self._migrate(connection)
        except (sqlite3.Error, StoreError):
            connection.close()
            raise
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > len(MIGRATIONS):
            self.corrupt = True
            raise self.failed(
                f"{self.path} was written by a newer llm-remediator (schema {version}, this one knows {len(MIGRATIONS)}); "
                "run that release, or move the file away: then cooldowns and budgets begin anew"
            )
        for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
            connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version={number}; COMMIT;")


@contextlib.contextmanager
def reading(path: str) -> Iterator[sqlite3.Connection]:
    """A connection that only reads, beside a running owner; `StoreError` if there is no journal to be read."""
    if not Path(path).is_file():
        raise StoreError(f"{path}: no journal there; nothing ran with this file yet, or `journal` names another")
    try:
        where = f"{Path(path).absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(where, uri=True, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            _same_release(path, connection.execute("PRAGMA user_version").fetchone()[0])
            yield connection
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{path} cannot be read: {error}; {_READING.get(_code(error), _UNREADABLE)}") from error


def _same_release(path: str, version: int) -> None:
    if version == len(MIGRATIONS):
        return
    wrote = "an older one wrote it, or none did: start this one on it once, which brings it up to date"
    if version > len(MIGRATIONS):
        wrote = "a newer llm-remediator wrote it: use that one's command"
    raise StoreError(f"{path} has schema {version}, this program reads {len(MIGRATIONS)}; {wrote}")


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
