"""Metrics, sources, peers and systemd, each against the real counterpart where there is one on this machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import types
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Gauge, generate_latest

from llm_heartbeat import health, merge, metrics, peers, process, sources, systemd, view
from llm_heartbeat.faults import Faults
from llm_heartbeat.report import Report

HEARTBEAT = Path(__file__).resolve().parents[2] / "heartbeat"


# Metrics -----------------------------------------------------------------------------------------------------------


def test_a_name_that_somebody_has_taken_is_left_to_them() -> None:
    registry, faults = CollectorRegistry(), Faults()
    Gauge("llm_event_loop_lag_seconds", "theirs", registry=registry).set(7)
    own = metrics.Metrics(faults, registry)
    own.set("llm_event_loop_lag_seconds", 1)
    own.set("llm_event_loop_lag_seconds", 2)
    assert registry.get_sample_value("llm_event_loop_lag_seconds") == 7
    assert faults.counts == {"metrics": 1}


def test_the_function_label_is_bounded() -> None:
    registry = CollectorRegistry()
    own = metrics.Metrics(Faults(), registry)
    for n in range(100):
        own.blocked_by(f"app.f{n}")
    lines = [
        li for li in generate_latest(registry).decode().splitlines() if li.startswith("llm_event_loop_blocked_by_total{")
    ]
    assert len(lines) == 33
    assert 'llm_event_loop_blocked_by_total{function="other"} 68.0' in lines


def test_unknown_values_export_nothing() -> None:
    registry = CollectorRegistry()
    own = metrics.Metrics(Faults(), registry)
    own.set("llm_health_queue_depth", None)
    assert b"queue_depth" not in generate_latest(registry)


def test_faults_are_counted_logged_once_and_exported(caplog: pytest.LogCaptureFixture) -> None:
    registry, faults = CollectorRegistry(), Faults()
    for _ in range(3):
        with faults.passed_by("sources"):
            raise OSError("gone")
    own = metrics.Metrics(faults, registry)
    own.show_faults()
    own.show_faults()
    assert registry.get_sample_value("llm_heartbeat_errors_total", {"where": "sources"}) == 3
    assert len([r for r in caplog.records if "gone" in r.getMessage()]) == 1


def test_no_name_of_ours_ends_in_a_way_prometheus_refuses() -> None:
    for name, (kind, text, _) in metrics.TABLE.items():
        assert name.startswith("llm_")
        assert "vllm" not in name, "vLLM unregisters every collector with that in its name"
        assert text.endswith(".")
        assert (kind == "counter") == name.endswith("_total")


# Sources -----------------------------------------------------------------------------------------------------------


def test_vllms_gauges_are_read_from_its_registry() -> None:
    assert sources.vllm_queue() is None
    waiting = Gauge("vllm:num_requests_waiting", "x", ["engine"])
    old = Gauge("vllm:gpu_cache_usage_perc", "x", ["engine"])
    try:
        waiting.labels("0").set(3)
        waiting.labels("1").set(4)
        old.labels("0").set(0.25)
        assert sources.vllm_queue() == 7
        assert sources.vllm_kv() == 0.25
        new = Gauge("vllm:kv_cache_usage_perc", "x", ["engine"])
        new.labels("0").set(0.5)
        new.labels("1").set(0.75)
        assert sources.vllm_kv() == 0.75
        REGISTRY.unregister(new)
    finally:
        REGISTRY.unregister(waiting)
        REGISTRY.unregister(old)


def test_vllms_gauges_of_several_api_servers(tmp_path: Path) -> None:
    write = (
        "from prometheus_client import Gauge\n"
        "g = Gauge('vllm:num_requests_waiting', 'x', ['engine'], multiprocess_mode='mostrecent')\n"
        "g.labels('0').set({value})\n"
    )
    environ = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PYTHONPATH": str(HEARTBEAT)}
    for value in (9, 5):
        subprocess.run([sys.executable, "-c", write.format(value=value)], env=environ, check=True)
    # vLLM's histograms are hundreds of kilobytes a server: to read them every second would cost its loop a tenth of the GIL.
    (tmp_path / "histogram_1.db").write_bytes(b"not to be read")
    read = "from llm_heartbeat import sources; print(sources.vllm_queue())"
    found = subprocess.run([sys.executable, "-c", read], env=environ, check=True, capture_output=True, text=True)
    assert found.stdout == "5.0\n"


def test_nvidia_memory_of_the_fullest_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU here: a module with the four calls that we use stands for NVML."""
    ended = []
    fake = types.ModuleType("pynvml")
    fake.NVMLError = type("NVMLError", (Exception,), {})  # type: ignore[attr-defined]
    fake.nvmlInit = lambda: None  # type: ignore[attr-defined]
    fake.nvmlShutdown = lambda: ended.append(1)  # type: ignore[attr-defined]
    fake.nvmlDeviceGetCount = lambda: 2  # type: ignore[attr-defined]
    fake.nvmlDeviceGetHandleByIndex = lambda n: n  # type: ignore[attr-defined]
    fake.nvmlDeviceGetMemoryInfo = lambda n: types.SimpleNamespace(used=[20, 72][n], total=80)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    assert sources.gpu_memory() == 0.9
    assert ended == [1]


def test_no_gpu_is_unknown() -> None:
    assert sources.gpu_memory() is None


def test_amd_memory_from_sysfs(tmp_path: Path) -> None:
    for card, used in (("card0", 16), ("card1", 48)):
        device = tmp_path / card / "device"
        device.mkdir(parents=True)
        (device / "mem_info_vram_total").write_text("64\n")
        (device / "mem_info_vram_used").write_text(f"{used}\n")
    assert sorted(sources._amd(tmp_path)) == [0.25, 0.75]


def test_a_source_that_hangs_becomes_unknown_and_blocks_nobody() -> None:
    gate = threading.Event()
    values = iter([5.0])

    def read() -> float | None:
        found = next(values, None)
        if found is None:
            gate.wait(30)
        return found

    source = sources.Source("queue", read, 0.01, Faults())
    source.start()
    end = time.monotonic() + 10
    while source.value(time.monotonic()) != 5.0 and time.monotonic() < end:
        time.sleep(0.01)
    assert source.value(time.monotonic()) == 5.0
    assert source.value(time.monotonic() + 6) is None
    source.stop()
    gate.set()


def test_a_source_that_raises_is_unknown() -> None:
    faults = Faults()

    def read() -> float:
        raise RuntimeError("NVML: GPU is lost")

    source = sources.Source("gpu", read, 0.01, faults)
    source.start()
    end = time.monotonic() + 10
    while not faults.counts["source_gpu"] and time.monotonic() < end:
        time.sleep(0.01)
    source.stop()
    assert faults.counts["source_gpu"] >= 1
    assert source.value(time.monotonic()) is None


# Peers -------------------------------------------------------------------------------------------------------------


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


# systemd -----------------------------------------------------------------------------------------------------------


class Systemd:
    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)

    def heard(self) -> list[str]:
        found = []
        while True:
            try:
                found.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return found


def test_systemd_hears_ready_and_the_watchdog_only_while_live(tmp_path: Path) -> None:
    listening = Systemd(tmp_path / "notify")
    notifier = systemd.Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "10000000"})
    assert notifier.watchdog_every == 5
    notifier.tick(0, live=True, ready=False, status="loading")
    assert listening.heard() == ["STATUS=loading", "WATCHDOG=1"]
    notifier.tick(1, live=True, ready=True, status="ready")
    notifier.tick(5, live=True, ready=True, status="ready")
    assert listening.heard() == ["READY=1", "STATUS=ready", "WATCHDOG=1"]
    for second in range(6, 60):
        notifier.tick(second, live=False, ready=True, status="stuck")
    assert listening.heard() == ["STATUS=stuck"]
    notifier.tick(60, live=True, ready=True, status="ready, draining")
    assert listening.heard() == ["STATUS=ready, draining", "WATCHDOG=1"]
    listening.socket.close()


def test_systemd_is_not_asked_where_it_is_not() -> None:
    notifier = systemd.Notifier({})
    notifier.tick(0, live=True, ready=True, status="x")
    assert notifier.watchdog_every is None


@pytest.mark.parametrize(("pid", "asked"), [(os.getpid(), True), (os.getppid(), True), (2**22 + 1, False)])
def test_the_watchdog_is_petted_by_the_main_process_and_by_its_servers(pid: int, asked: bool) -> None:
    environ = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": str(pid)}
    assert (systemd.Notifier(environ).watchdog_every is not None) == asked


def test_the_snapshot_is_json_that_reads_back(tmp_path: Path) -> None:
    snapshot(os.getpid()).write(tmp_path)
    text = (tmp_path / f"llm_heartbeat_{os.getpid()}.json").read_text()
    assert peers.Snapshot(**json.loads(text)) == snapshot(os.getpid())
