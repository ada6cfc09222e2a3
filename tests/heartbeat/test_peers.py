"""Several processes of one server: who is alive, and what they answer together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from llm_heartbeat import health, merge, peers, process, view
from llm_heartbeat.report import Report

HEARTBEAT = Path(__file__).resolve().parents[2] / "heartbeat"


def snapshot(
    pid: int, written: float = 100.0, late: float = -0.05, startup: str = "ready", ready: bool = True, culprit_at: float = 0
) -> peers.Snapshot:
    """As written by a process whose heartbeat was `late` seconds overdue then."""
    return peers.Snapshot(
        pid=pid,
        began=process.start_ticks(pid),
        written=written,
        due=written - late,
        startup=startup,
        startup_reason=startup if startup != "ready" else "",
        ready=ready,
        ready_status="ok" if ready else "failed",
        ready_reason="" if ready else "queue_depth 9 requests, limit 8",
        lag=0.01,
        failed=[] if ready else ["queue_full"],
        culprit={"function": "tokenize", "at": culprit_at} if culprit_at else None,
    )


def test_the_living_are_read_the_dead_are_buried_with_their_gauges(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    snapshot(dead.pid).write(tmp_path)
    snapshot(os.getppid()).write(tmp_path)
    snapshot(os.getpid()).write(tmp_path)
    (tmp_path / "llm_heartbeat_0.json").write_text("{")
    (tmp_path / f"gauge_livemax_{dead.pid}.db").touch()
    (tmp_path / f"counter_{dead.pid}.db").touch()
    assert peers.others(tmp_path) == [snapshot(os.getppid())]
    peers.bury_dead(tmp_path)
    left = {p.name for p in tmp_path.iterdir()}
    assert f"gauge_livemax_{dead.pid}.db" not in left
    assert f"llm_heartbeat_{dead.pid}.json" not in left
    assert f"counter_{dead.pid}.db" in left, "a counter keeps what the dead one has counted"


def test_a_later_process_of_the_same_number_is_not_the_one_that_wrote(tmp_path: Path) -> None:
    """A directory that outlives its container: process numbers come again there, and so would a dead process' block."""
    parent = os.getppid()
    replace(snapshot(parent), began=1).write(tmp_path)
    (tmp_path / f"gauge_livemax_{parent}.db").touch()
    assert peers.others(tmp_path) == []
    peers.bury_dead(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [f"gauge_livemax_{parent}.db"], "the living one's gauges stay"


def test_a_zombie_does_not_run(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    snapshot(ended.pid).write(tmp_path)
    assert len(peers.others(tmp_path)) == 1
    ended.kill()
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # ended, and left as a zombie
    assert peers.others(tmp_path) == []
    assert ended.stdin is not None
    ended.stdin.close()
    ended.wait()


def test_who_cannot_write_leaves_nothing_that_looks_like_silence(tmp_path: Path) -> None:
    snapshot(os.getppid()).write(tmp_path)
    (tmp_path / f"llm_heartbeat_{os.getppid()}.new").mkdir()
    with pytest.raises(OSError, match="directory"):
        snapshot(os.getppid()).write(tmp_path)
    assert peers.others(tmp_path) == []


def test_the_age_of_a_process() -> None:
    child = "import time, sys; from llm_heartbeat import process; time.sleep(0.3); print(process.age())"
    environ = {**os.environ, "PYTHONPATH": str(HEARTBEAT)}
    began = time.monotonic()
    found = subprocess.run([sys.executable, "-c", child], env=environ, check=True, capture_output=True, text=True)
    assert 0.29 < float(found.stdout) < time.monotonic() - began + 0.02
    assert process.start_ticks(2**22 + 1) is None
    assert not process.runs(2**22 + 1, None)
    assert process.runs(os.getpid(), process.start_ticks(os.getpid()))


def own(endpoint: str, code: int = 200) -> Report:
    seen = view.View(
        loop_attached=True, lag=0.0, blocked=0.0, blocked_since=None, stuck=0.0, live_after=30,
        phase="ready" if code == 200 else "loading", phase_reason="", phase_since=1.0, rewarming=False, elapsed=1, budget=0,
        draining="", draining_since=None, inflight=0,
    )  # fmt: skip
    return health.ENDPOINTS[endpoint](seen)


def merged(
    endpoint: str, *others: peers.Snapshot, now: float = 100.9, since: float = 0, serves: bool = True, code: int = 200
) -> Report:
    look = merge.Look(now=now, wall=now + 1e9, watching_since=since, live_after=30, serves=serves)
    return merge.merge(own(endpoint, code), list(others), look)


def test_one_process_is_its_own_answer() -> None:
    assert merged("live") == own("live")


@pytest.mark.parametrize("serves", [True, False])
def test_healthy_peers_are_not_late_by_the_age_of_their_files(serves: bool) -> None:
    found = merged("live", snapshot(1), snapshot(2, late=0.1), serves=serves)
    assert (found.checks["event_loop"], found.checks["blocked_seconds"]) == ("turning", 0)
    assert found.checks["event_loop_lag_ms"] == 10
    assert found.code == 200


@pytest.mark.parametrize("serves", [True, False])
def test_the_worst_loop_speaks_for_live(serves: bool) -> None:
    blocked = merged("live", snapshot(1), snapshot(2, late=20), serves=serves)
    assert (blocked.code, blocked.checks["blocked_seconds"], blocked.checks["event_loop"]) == (200, 20.9, "blocked")
    stuck = merged("live", snapshot(1), snapshot(2, late=40.1), serves=serves)
    assert (stuck.code, stuck.failed) == (503, ("event_loop_stuck",))
    assert stuck.reason == "the event loop of process 2 has not turned for 41.0 s"
    assert stuck.checks["event_loop_lag_ms"] == 41000


def test_a_process_that_no_longer_writes_is_late_too() -> None:
    assert merged("live", snapshot(2), now=104).checks["blocked_seconds"] == 0
    assert merged("live", snapshot(2), now=140).code == 503


def test_the_culprit_of_an_earlier_block_is_not_shown() -> None:
    now = 1e9 + 100.9
    assert merged("live", snapshot(2, late=40, culprit_at=now - 39)).culprit == {"function": "tokenize", "at": now - 39}
    assert merged("live", snapshot(2, late=40, culprit_at=now - 60)).culprit is None


def test_after_a_suspension_a_peer_is_given_the_time_again() -> None:
    assert merged("live", snapshot(2, late=40), since=95).code == 200


def test_a_launcher_speaks_through_its_servers() -> None:
    assert merged("startup", snapshot(1), serves=False, code=503).code == 200
    loading = merged("startup", snapshot(1), snapshot(2, startup="loading"), serves=False, code=503)
    assert (loading.code, loading.failed) == (503, ("model_loading",))
    assert merged("startup", snapshot(1, startup="failed"), serves=False, code=503).code == 500
    assert merged("ready", snapshot(1), serves=False, code=503).code == 200


def test_ready_as_long_as_one_is() -> None:
    assert merged("ready", snapshot(1, ready=False)).code == 200
    assert merged("ready", snapshot(1), code=503).code == 200
    launcher = merged("ready", snapshot(1, ready=False), serves=False, code=503)
    assert (launcher.code, launcher.failed) == (503, ("queue_full",))
    assert launcher.reason == "queue_depth 9 requests, limit 8", "not the launcher's own loading"
    both = merged("ready", snapshot(1, ready=False), code=503)
    assert both.failed == ("model_loading", "queue_full")
    failed = replace(snapshot(1, startup="failed", ready=False), failed=["load_failed"])
    assert merged("ready", failed, serves=False, code=503).code == 500


def test_a_silent_process_is_not_ready_whatever_it_wrote_last() -> None:
    silent = merged("ready", snapshot(1), now=120, serves=False, code=503)
    assert (silent.code, silent.failed, silent.reason) == (503, ("event_loop_slow",), "process 1 is silent")
    assert merged("ready", snapshot(1), now=120, since=118, serves=False, code=503).code == 200


def test_the_snapshot_is_json_that_reads_back(tmp_path: Path) -> None:
    snapshot(os.getpid()).write(tmp_path)
    text = (tmp_path / f"llm_heartbeat_{os.getpid()}.json").read_text()
    assert peers.Snapshot(**json.loads(text)) == snapshot(os.getpid())
