"""The journal: durable before it answers, one owner, migrations, and faults that never read as 'nothing happened'."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llm_remediator import journal_attempts, journal_audit, journal_targets
from llm_remediator.history import ForeignStart, Latch, Pause, Phase, Result
from llm_remediator.journal_schema import MIGRATIONS
from llm_remediator.journal_store import JournalLockedError, JournalStore, reading
from llm_remediator.journal_thread import JournalThread
from llm_remediator.service import Delivery, ReceivedAlert, StoreError
from llm_remediator.snapshot import Alert, Decision, Verb

NOW = 1_800_000_000.0


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[JournalThread]:
    thread = JournalThread(str(tmp_path / "j" / "journal.sqlite"))
    thread.start()
    yield thread
    thread.close()


def decision(at: float = NOW, reason: str = "cooldown", text: str = "x") -> Decision:
    return Decision("a", at, Verb.DEFER, "cooldown", reason, text, {"held": 3})


def delivery(count: int = 1, status: str = "firing") -> Delivery:
    labels = {"alertname": "LLMEngineStuck", "remediate": "restart", "target": "a"}
    alert = ReceivedAlert(status, labels, {}, "fp", NOW, None)
    return Delivery((alert,) * count, 2, "group", "receiver", "127.0.0.1")


async def test_it_is_a_wal_file_with_full_sync(journal: JournalThread) -> None:
    def pragmas(db: sqlite3.Connection) -> tuple[str, int, int]:
        words = ("journal_mode", "synchronous", "user_version")
        mode, sync, version = (db.execute(f"PRAGMA {w}").fetchone()[0] for w in words)
        return mode, sync, version

    assert await journal.run(pragmas) == ("wal", 2, len(MIGRATIONS))


async def test_what_waits_together_is_committed_together(journal: JournalThread) -> None:
    """Ten thousand alerts in bodies of fifty: each body durable before its answer, far fewer syncs than bodies."""
    commits = 0

    def count(db: sqlite3.Connection) -> None:
        def trace(statement: str) -> None:
            nonlocal commits
            commits += statement == "COMMIT"

        db.set_trace_callback(trace)

    await journal.run(count)
    known = frozenset({"a"})
    await asyncio.gather(
        *(journal.run(lambda db: journal_audit.store_delivery(db, delivery(50), known, at=NOW)) for _ in range(200))
    )
    stored = await journal.run(lambda db: db.execute("SELECT COUNT(*) FROM deliveries").fetchone()[0])
    assert stored == 200
    assert commits < 50


async def test_an_answer_means_that_another_process_sees_it(journal: JournalThread, tmp_path: Path) -> None:
    await journal.run(lambda db: journal_audit.store_delivery(db, delivery(), frozenset({"a"}), at=NOW))
    code = (
        "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT COUNT(*) FROM deliveries').fetchone()[0])"
    )
    path = str(tmp_path / "j" / "journal.sqlite")
    assert subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True).stdout == "1\n"


async def test_one_jobs_error_does_not_undo_its_neighbours(journal: JournalThread) -> None:
    def bad(db: sqlite3.Connection) -> None:
        journal_targets.remember(db, "bad", 1.0)
        raise ValueError("mine alone")

    results = await asyncio.gather(
        journal.run(lambda db: journal_targets.remember(db, "good", 1.0)), journal.run(bad), return_exceptions=True
    )
    assert isinstance(results[1], ValueError)
    assert await journal.run(lambda db: journal_targets.remembered(db, "good")) == 1.0
    assert await journal.run(lambda db: journal_targets.remembered(db, "bad")) is None
    assert journal.fault == ""


async def test_one_owner(journal: JournalThread, tmp_path: Path) -> None:
    second = JournalThread(str(tmp_path / "j" / "journal.sqlite"))
    with pytest.raises(JournalLockedError, match=rf"process {os.getpid()}.*one target has one owner"):
        second.start()
    second.close()
    journal.close()
    third = JournalThread(str(tmp_path / "j" / "journal.sqlite"))
    third.start()
    third.close()


async def test_a_corrupt_file_is_a_fault_until_a_person_moves_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"this is no database, but it is long enough to be looked at" * 100)
    thread = JournalThread(str(path))
    thread.start()
    assert "is corrupt" in thread.fault
    with pytest.raises(StoreError, match="moved away"):
        await thread.run(lambda db: journal_attempts.attempts(db))
    thread.close()


async def test_a_page_torn_in_the_middle_is_found_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    first = JournalThread(str(path))
    first.start()
    for number in range(300):
        await first.run(
            lambda db, n=number: journal_audit.record_decision(db, decision(reason=f"r{n}", text="x" * 200), mode="act")
        )
    first.close()
    raw = bytearray(path.read_bytes())
    middle = len(raw) // 2 // 4096 * 4096
    raw[middle : middle + 4096] = os.urandom(4096)
    path.write_bytes(raw)
    second = JournalThread(str(path))
    second.start()
    assert "corrupt" in second.fault
    second.close()


async def test_a_newer_schema_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    thread = JournalThread(str(path))
    thread.start()
    assert "written by a newer llm-remediator (schema 99" in thread.fault
    thread.close()


async def test_every_older_schema_is_brought_up(tmp_path: Path) -> None:
    for version in range(len(MIGRATIONS)):
        path = tmp_path / f"v{version}.sqlite"
        db = sqlite3.connect(path)
        for script in MIGRATIONS[:version]:
            db.executescript(script)
        db.execute(f"PRAGMA user_version={version}")
        db.close()
        store = JournalStore(str(path))
        assert store.connection().execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS)
        store.close()


async def test_a_full_disk_is_a_fault_that_passes(journal: JournalThread) -> None:
    """`max_page_count` makes SQLite answer SQLITE_FULL as a full disk does."""

    def fill(db: sqlite3.Connection) -> None:
        db.execute(f"PRAGMA max_page_count={db.execute('PRAGMA page_count').fetchone()[0]}")

    await journal.run(fill)
    with pytest.raises(StoreError, match="full"):
        await asyncio.gather(
            *(
                journal.run(lambda db: journal_audit.store_delivery(db, delivery(500), frozenset(), at=NOW))
                for _ in range(50)
            )
        )
    assert "full" in journal.fault
    # The next call opens the file anew, without the limit: there is room again.
    await journal.run(lambda db: journal_targets.remember(db, "x", 1.0))
    assert journal.fault == ""
    assert await journal.run(lambda db: db.execute("SELECT COUNT(*) FROM deliveries").fetchone()[0]) == 0


async def test_a_directory_that_cannot_be_written_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    thread = JournalThread(str(tmp_path / "file" / "journal.sqlite"))
    thread.start()
    assert "cannot be used" in thread.fault
    with pytest.raises(StoreError):
        await thread.run(lambda db: None)
    thread.close()


async def test_a_file_that_became_read_only_says_what_to_do_and_is_tried_again(journal: JournalThread) -> None:
    """`query_only` makes SQLite answer SQLITE_READONLY as a read-only file does."""
    await journal.run(lambda db: db.execute("PRAGMA query_only=ON"))
    with pytest.raises(StoreError, match="readonly database; let this user write the file and its folder"):
        await journal.run(lambda db: journal_targets.remember(db, "x", 1.0))
    await journal.run(lambda db: journal_targets.remember(db, "x", 1.0))
    assert journal.fault == ""


async def test_the_same_decision_again_only_counts(journal: JournalThread) -> None:
    async def put(at: float, reason: str) -> tuple[int, bool]:
        return await journal.run(lambda db: journal_audit.record_decision(db, decision(at, reason, f"at {at}"), mode="act"))

    first, new = await put(NOW, "cooldown")
    assert new
    assert await put(NOW + 30, "cooldown") == (first, False)
    second, new = await put(NOW + 60, "budget")
    assert new
    assert (await put(NOW + 90, "cooldown"))[1]
    views = await journal.run(lambda db: journal_audit.decisions(db, target="a"))
    assert [(v.reason, v.evidence["count"]) for v in views] == [("cooldown", 1), ("budget", 1), ("cooldown", 2)]
    assert views[2].at == NOW
    assert views[2].evidence["last_at"] == NOW + 30
    assert views[2].text == f"at {NOW + 30}"
    assert second > first


async def test_resolved_speaks_for_its_own_alert_only(journal: JournalThread) -> None:
    def put(db: sqlite3.Connection) -> None:
        journal_audit.store_alert(db, Alert("a", "One", True, NOW, "webhook", "f1"))
        journal_audit.store_alert(db, Alert("a", "Two", True, NOW + 1, "webhook", "f2"))
        journal_audit.store_alert(db, Alert("a", "Two", False, NOW + 2, "webhook", "f2"))

    await journal.run(put)
    assert (await journal.run(journal_audit.alerts))["a"].name == "One"


async def test_the_level_ends_what_it_does_not_name(journal: JournalThread) -> None:
    def put(db: sqlite3.Connection) -> None:
        journal_audit.store_alert(db, Alert("a", "One", True, NOW, "webhook", "f1"))
        journal_audit.level(db, [Alert("b", "One", True, NOW + 9, "alertmanager", "f2")], at=NOW + 9)

    await journal.run(put)
    found = await journal.run(journal_audit.alerts)
    assert (found["a"].firing, found["b"].firing) == (False, True)


async def test_alerts_of_targets_that_are_not_ours_are_kept_as_deliveries_only(journal: JournalThread) -> None:
    await journal.run(lambda db: journal_audit.store_delivery(db, delivery(), frozenset({"other"}), at=NOW))
    assert await journal.run(journal_audit.alerts) == {}


async def test_an_attempt_goes_through_its_phases(journal: JournalThread) -> None:
    def live(db: sqlite3.Connection) -> int:
        return journal_attempts.open_attempt(db, "a", at=NOW, simulated=False, decision_id=None)

    number = await journal.run(live)
    assert [a.id for a in await journal.run(journal_attempts.unfinished)] == [number]
    await journal.run(
        lambda db: journal_attempts.update_attempt(db, number, phase=Phase.CLOSED, result=Result.VERIFIED, closed_at=NOW + 9)
    )
    assert await journal.run(journal_attempts.unfinished) == ()
    attempt = await journal.run(lambda db: journal_attempts.attempt_by_id(db, number))
    assert (attempt.phase, attempt.result, attempt.open) == (Phase.CLOSED, Result.VERIFIED, False)
    with pytest.raises(ValueError, match="no such columns"):
        await journal.run(lambda db: journal_attempts.update_attempt(db, number, target="b"))


async def test_diagnostics_keep_the_end_of_what_is_too_long(journal: JournalThread) -> None:
    text = "x" * journal_attempts.DIAGNOSTIC_LIMIT + "the cause"

    def put(db: sqlite3.Connection) -> dict[str, str]:
        number = journal_attempts.open_attempt(db, "a", at=NOW, simulated=False, decision_id=None)
        journal_attempts.keep_diagnostics(db, number, {"logs": text})
        return journal_attempts.diagnostics(db, number)

    kept = (await journal.run(put))["logs"]
    assert kept.endswith("the cause")
    assert len(kept) == journal_attempts.DIAGNOSTIC_LIMIT


async def test_a_simulated_latch_holds_nobody_in_mode_act(journal: JournalThread) -> None:
    def put(db: sqlite3.Connection) -> tuple[bool, bool]:
        journal_targets.set_latch(db, "a", Latch(NOW, "budget", "x"), simulated=True)
        seen = (journal_targets.latch(db, "a", simulated=s) is not None for s in (True, False))
        return next(seen), next(seen)

    assert await journal.run(put) == (True, False)


async def test_pauses_replace_each_other_and_end(journal: JournalThread) -> None:
    def put(db: sqlite3.Connection) -> list[tuple[str | None, float]]:
        journal_targets.pause(db, Pause("a", NOW + 60, "one", "ann"), at=NOW)
        journal_targets.pause(db, Pause("a", NOW + 30, "two", "ann"), at=NOW)
        journal_targets.pause(db, Pause(None, NOW + 10, "all", "ann"), at=NOW)
        return [(p.target, p.until) for p in journal_targets.pauses(db, at=NOW + 5)]

    assert await journal.run(put) == [("a", NOW + 30), (None, NOW + 10)]
    assert await journal.run(lambda db: journal_targets.resume(db, None, at=NOW + 6, by="ann"))
    assert not await journal.run(lambda db: journal_targets.resume(db, None, at=NOW + 7, by="ann"))
    assert await journal.run(lambda db: journal_targets.pauses(db, at=NOW + 31)) == ()


async def test_retention_drops_what_is_old_but_nothing_in_flight(journal: JournalThread) -> None:
    old = NOW - 100 * 86400

    def put(db: sqlite3.Connection) -> None:
        journal_audit.store_delivery(db, delivery(), frozenset({"a"}), at=old)
        journal_audit.record_decision(db, decision(old), mode="act")
        journal_attempts.open_attempt(db, "a", at=old, simulated=False, decision_id=None)
        closed = journal_attempts.open_attempt(db, "a", at=old, simulated=False, decision_id=None)
        journal_attempts.update_attempt(db, closed, phase=Phase.CLOSED, closed_at=old)
        journal_attempts.keep_diagnostics(db, closed, {"logs": "x"})
        journal_targets.seen_start(db, "a", ForeignStart("id", old, "api"), at=old)
        journal_audit.record_decision(db, decision(NOW, "budget"), mode="act")
        journal_audit.prune(db, at=NOW, keep=90 * 86400.0)

    await journal.run(put)

    def counts(db: sqlite3.Connection) -> list[int]:
        tables = ("deliveries", "decisions", "attempts", "diagnostics", "starts")
        return [db.execute(f"SELECT COUNT(*) FROM {t}").fetchone()[0] for t in tables]

    assert await journal.run(counts) == [0, 1, 1, 0, 0]


async def test_reading_beside_the_owner_and_after_it(journal: JournalThread, tmp_path: Path) -> None:
    path = str(tmp_path / "j" / "journal.sqlite")
    await journal.run(lambda db: journal_audit.record_decision(db, decision(), mode="act"))
    for _ in range(2):
        with reading(path) as reader:
            assert len(journal_audit.decisions(reader)) == 1
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                journal_targets.remember(reader, "x", 1.0)
        journal.close()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no journal there; nothing ran"),
        (b"", "has schema 0, this program reads .*: start this one on it once"),
        (b"this is no database, but it is long enough to be looked at" * 100, "not a database; .* move it away"),
        (99, "has schema 99, .* a newer llm-remediator wrote it"),
        (1, "has schema 1, .* start this one on it once"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(tmp_path: Path, content: bytes | int | None, words: str) -> None:
    path = tmp_path / "j.sqlite"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute(f"PRAGMA user_version={content}")
    with pytest.raises(StoreError, match=words), reading(str(path)):
        pass


async def test_a_torn_page_ends_a_reader_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    first = JournalThread(str(path))
    first.start()
    for number in range(300):
        one = decision(reason=f"r{number}", text="x" * 200)
        await first.run(lambda db, d=one: journal_audit.record_decision(db, d, mode="act"))
    first.close()
    raw = bytearray(path.read_bytes())
    for page in range(20, len(raw) // 4096):
        raw[page * 4096 : page * 4096 + 4096] = b"\xff" * 4096
    path.write_bytes(raw)
    with pytest.raises(StoreError, match="move it away"), reading(str(path)) as db:
        journal_audit.decisions(db, limit=1000)
