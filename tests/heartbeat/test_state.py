"""Startup, live and ready with injected time and no thread: what is answered when, and why."""

import json
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from llm_heartbeat.culprit import Culprit
from llm_heartbeat.export import export
from llm_heartbeat.metrics import Metrics
from llm_heartbeat.report import response
from llm_heartbeat.settings import Settings
from llm_heartbeat.sources import Source
from llm_heartbeat.state import State


class Process:
    """A state on a clock of its own, with a loop that beats or not."""

    def __init__(self, **options: object) -> None:
        self.now = 1000.0
        self.state = State(Settings(**options), clock=lambda: self.now, wall=lambda: self.now + 1e9)  # type: ignore[arg-type]
        self.registry = CollectorRegistry()
        self.state.metrics = Metrics(self.state.faults, self.registry)
        self.looked_for: list[float] = []

    def culprit(self, blocked: float) -> Culprit:
        self.looked_for.append(blocked)
        return Culprit("/app/tokenize.py", 42, "slow_template", ("main (/app/main.py:1)",), self.now, blocked)

    def run(self, seconds: float, beating: bool = True) -> None:
        for _ in range(round(seconds / 0.05)):
            self.now += 0.05
            beats = self.state.beats
            if beating and beats is not None and self.now >= beats.due:
                self.state.beat()
            self.state.tick(self.culprit)
        assert self.state.metrics is not None
        export(self.state, self.state.metrics)

    def code(self, endpoint: str) -> int:
        return self.state.report(endpoint).code

    def failed(self, endpoint: str) -> tuple[str, ...]:
        return self.state.report(endpoint).failed

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def value_of(self, name: str, read: Callable[[], float | None]) -> None:
        """A source that is read at every tick, without its thread."""

        class Now(Source):
            def value(self, now: float) -> float | None:
                return read()

        self.state.sources[name] = Now(name, read, 1, self.state.faults)


@pytest.fixture
def serving() -> Process:
    process = Process(ready_queue=100.0)
    process.state.attach()
    process.state.loaded()
    process.run(1)
    return process


def test_a_start_is_loading_then_warming_up_then_ready() -> None:
    process = Process(startup_budget=600.0)
    process.run(1)
    assert (process.code("startup"), process.failed("startup")) == (503, ("model_loading",))
    assert (process.code("ready"), process.failed("ready")) == (503, ("model_loading",))
    assert process.code("live") == 200
    process.state.needs_warmup()
    process.state.loaded()
    assert process.failed("startup") == ("warming_up",)
    assert process.state.report("startup").checks["model_loaded"] is True
    process.run(9)
    process.state.warmed_up()
    assert process.code("startup") == process.code("ready") == 200
    process.run(100)
    assert process.state.report("startup").checks["elapsed_seconds"] == 10.0


def test_the_budget_is_shown_and_ends_nothing() -> None:
    process = Process(startup_budget=60.0)
    process.state.loading("loading weights")
    process.run(61)
    report = process.state.report("startup")
    assert (report.code, report.checks["over_budget"]) == (503, True)
    assert report.reason == "loading weights; 61 s of 60 s are used up"


def test_a_load_while_it_runs_has_a_time_of_its_own() -> None:
    process = Process(startup_budget=60.0)
    process.state.loaded()
    process.run(100)
    process.state.loading("other weights")
    process.run(7)
    checks = process.state.report("startup").checks
    assert (checks["elapsed_seconds"], checks["over_budget"]) == (7.0, False)
    process.state.loaded()
    process.run(5)
    assert process.state.report("startup").checks["elapsed_seconds"] == 7.0


def test_a_failed_load_is_500_at_once_and_for_good() -> None:
    process = Process()
    with pytest.raises(MemoryError), process.state.load("weights"):
        raise MemoryError("CUDA out of memory")
    report = process.state.report("startup")
    assert (report.code, report.status, report.failed) == (500, "failed", ("load_failed",))
    assert report.reason == "loading weights failed: MemoryError: CUDA out of memory"
    assert process.code("ready") == 500
    assert process.code("live") == 200
    process.state.loaded()
    process.state.loading()
    process.state.load_failed("the application's start failed")
    assert process.state.report("startup").reason == report.reason, "what came first is the cause"
    assert process.code("startup") == 500


def test_live_is_the_heartbeats_age_and_nothing_else(serving: Process) -> None:
    serving.state.drain()
    serving.value_of("queue", lambda: 1e9)
    serving.run(5)
    assert serving.code("ready") == 503
    assert serving.code("live") == 200
    serving.run(29.9, beating=False)
    assert serving.code("live") == 200
    serving.run(0.5, beating=False)
    report = serving.state.report("live")
    assert (report.code, report.failed) == (503, ("event_loop_stuck",))
    assert report.reason == "the event loop has not turned for 30.3 s; in slow_template (/app/tokenize.py:42)"
    assert len(serving.looked_for) == 1
    assert serving.metric("llm_health_live") == 0
    assert serving.metric("llm_event_loop_blocked_by_total", function="tokenize.slow_template") == 1
    serving.run(0.2)
    assert serving.code("live") == 200
    assert serving.state.report("live").culprit == json.loads(json.dumps(serving.state.report("live").culprit))


def test_lag_rises_during_the_block_and_stays_for_the_window(serving: Process) -> None:
    serving.run(3, beating=False)
    assert serving.metric("llm_event_loop_lag_seconds") == pytest.approx(2.9, abs=0.15)
    assert serving.metric("llm_event_loop_blocked_seconds") == pytest.approx(2.9, abs=0.15)
    serving.run(1)
    assert serving.metric("llm_event_loop_blocked_seconds") == 0
    serving.run(27)
    assert serving.metric("llm_event_loop_lag_seconds") == pytest.approx(2.9, abs=0.15)
    serving.run(5)
    assert serving.metric("llm_event_loop_lag_seconds") == pytest.approx(0.0, abs=0.06)
    assert serving.metric("llm_event_loop_blocked_total") == 1


def test_a_slow_loop_leaves_the_service_and_returns_after_the_hold(serving: Process) -> None:
    serving.run(4, beating=False)
    assert serving.code("ready") == 200
    serving.run(2, beating=False)
    assert serving.failed("ready") == ("event_loop_slow",)
    serving.run(9)
    assert serving.code("ready") == 503
    serving.run(3)
    assert serving.code("ready") == 200


def test_a_full_queue_leaves_with_the_numbers_in_the_reason(serving: Process) -> None:
    depth = 240.0
    serving.value_of("queue", lambda: depth)
    serving.run(0.1)
    report = serving.state.report("ready")
    assert (report.code, report.failed) == (503, ("queue_full",))
    assert report.checks["queue_depth"] == 240
    assert report.checks["queue_limit"] == 100
    assert report.reason == "queue_depth 240 requests, limit 100"
    assert report.details["queue_full"]["since"] == pytest.approx(serving.now + 1e9, abs=0.2)
    assert serving.metric("llm_health_queue_depth") == 240
    assert serving.metric("llm_health_queue_limit") == 100
    assert serving.metric("llm_health_check_failed", check="queue_full") == 1
    depth = 90.0
    serving.run(20)
    assert serving.state.report("ready").reason.startswith("queue_depth 90 requests is not yet well below its limit")


def test_limits_are_off_until_given() -> None:
    process = Process()
    process.state.attach()
    process.state.loaded()
    for name in ("queue", "kv", "gpu"):
        process.value_of(name, lambda: 1e9)
    process.run(5)
    assert process.code("ready") == 200
    assert process.state.report("ready").checks["gpu_mem_ratio"] == 1e9
    assert process.metric("llm_health_gpu_ratio") == 1e9


def test_a_limit_of_zero_is_off_and_not_always_over() -> None:
    process = Process(ready_queue=0.0, ready_kv=0.0, ready_gpu=0.0, ready_lag=0.0)
    process.state.attach()
    process.state.loaded()
    for name in ("queue", "kv", "gpu"):
        process.value_of(name, lambda: 0.5)
    process.run(5)
    assert process.code("ready") == 200
    assert process.state.report("ready").checks["queue_limit"] is None
    assert process.metric("llm_health_queue_limit") is None


def test_whatever_fails_has_limit_unit_and_since() -> None:
    process = Process(ready_queue=100.0, startup_budget=60.0)
    began = process.now + 1e9
    process.run(1)
    for endpoint in ("startup", "ready"):
        assert process.state.report(endpoint).details["model_loading"]["since"] == began
    assert process.state.report("startup").details["model_loading"]["limit"] == 60
    process.state.attach()
    process.state.loaded()
    process.value_of("queue", lambda: 240.0)
    process.run(1)
    process.state.drain("SIGTERM")
    drained = process.now + 1e9
    process.run(31, beating=False)
    ready, live = process.state.report("ready"), process.state.report("live")
    assert set(ready.failed) == {"queue_full", "draining", "event_loop_slow"}
    assert all(set(ready.details[name]) >= {"limit", "unit", "since"} for name in ready.failed)
    assert ready.details["draining"]["since"] == pytest.approx(drained, abs=0.1)
    assert ready.details["model_loading"]["since"] is None
    assert live.details["event_loop_stuck"] == {"limit": 30, "unit": "seconds", "since": pytest.approx(drained, abs=0.2)}
    assert {name for name in ready.details if process.metric("llm_health_check_failed", check=name)} == set(ready.failed)
    assert process.metric("llm_health_check_failed", check="model_loading") == 0


@pytest.mark.parametrize(("period", "at_most"), [(4, 1), (16, 1), (40, 16)])
def test_flapping_is_bounded_over_ten_minutes(serving: Process, period: int, at_most: int) -> None:
    """A queue that swings through its limit 150, 38 and 15 times: what is faster than the hold leaves once."""
    serving.value_of("queue", lambda: 150.0 if int(serving.now) % period < period / 2 else 20.0)
    serving.run(600)
    changes = serving.metric("llm_heartbeat_changes_total", endpoint="ready", to="failed")
    assert changes is not None
    assert 1 <= changes <= at_most


def test_draining_is_seen_at_once_and_ends_with_a_new_loop(serving: Process) -> None:
    serving.state.drain("SIGTERM")
    assert (serving.code("ready"), serving.failed("ready")) == (503, ("draining",))
    assert serving.state.report("ready").reason == "SIGTERM"
    serving.state.attach()
    assert serving.code("ready") == 200


def test_after_an_out_of_memory_recovery_ready_waits_for_the_warmup(serving: Process) -> None:
    serving.state.needs_warmup("warming up again")
    assert serving.code("startup") == 200
    assert (serving.code("ready"), serving.failed("ready")) == (503, ("warming_up",))
    serving.run(1)
    assert serving.metric("llm_health_check_failed", check="warming_up") == 1
    serving.state.warmed_up()
    assert serving.code("ready") == 200


def test_every_change_is_one_log_line_one_count_one_entry(serving: Process, caplog: pytest.LogCaptureFixture) -> None:
    serving.value_of("queue", lambda: 240.0)
    serving.run(2)
    lines = [r.getMessage() for r in caplog.records if r.name == "llm_heartbeat" and "ready" in r.getMessage()]
    assert lines == ["ready: ok -> failed: queue_depth 240 requests, limit 100"]
    assert serving.metric("llm_heartbeat_changes_total", endpoint="ready", to="failed") == 1
    last = serving.state.report("ready").changes[-1]
    assert last["failed"] == ["queue_full"]
    assert last["at"] == pytest.approx(serving.now - 2 + 1e9, abs=0.2)


def test_the_last_changes_are_kept() -> None:
    process = Process(history=3)
    for n in range(10):
        process.state.loading(str(n))
        process.state.drain_reason = "x" if n % 2 else ""
        process.state.tick(process.culprit)
    assert len(process.state.report("live").changes) == 3


def test_the_verbose_form_is_kubernetes_text(serving: Process) -> None:
    serving.value_of("queue", lambda: 240.0)
    serving.run(1)
    code, content_type, body = response(serving.state.report("ready"), "a=1&verbose")
    assert (code, content_type) == (503, "text/plain; charset=utf-8")
    lines = body.decode().splitlines()
    assert lines[0] == "[-]queue_full failed: queue_depth 240 requests, limit 100"
    assert lines[1:5] == ["[+]model_loading ok", "[+]warming_up ok", "[+]load_failed ok", "[+]draining ok"]
    assert "queue_depth: 240.0" in lines
    assert lines[-1] == "ready check failed"


def test_the_verbose_form_gives_each_failure_its_own_reason(serving: Process) -> None:
    serving.value_of("queue", lambda: 240.0)
    serving.run(1)
    serving.state.drain("SIGTERM")
    lines = response(serving.state.report("ready"), "verbose")[2].decode().splitlines()
    assert lines[:2] == ["[-]draining failed: SIGTERM", "[-]queue_full failed: queue_depth 240 requests, limit 100"]
    assert not [line for line in lines if line.startswith("[+]") and "False" in line]


def test_without_details_the_body_names_no_code(serving: Process) -> None:
    serving.run(31, beating=False)
    _, _, body = response(serving.state.report("live"), "", details=False)
    assert set(json.loads(body)) == {"status", "checks", "failed", "degraded", "reason", "details"}


def test_a_detached_loop_cannot_be_late(serving: Process) -> None:
    serving.state.detach()
    serving.run(600, beating=False)
    report = serving.state.report("live")
    assert (report.code, report.checks["event_loop"]) == (200, "not attached")
