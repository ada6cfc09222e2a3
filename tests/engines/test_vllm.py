"""The real exporter judges a real vLLM: no healthy server is called stuck, and every hang is found."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engines import lab
from engines.exporter import IMPATIENT, Exporter, Said, Watch, watching
from engines.results import Record

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

ENGINE = "vLLM 0.32.0 (CPU)"
LONG = 28000
KEY = "sk-real-engine"
SLOTS = 4
STALLED, STUCK, SILENT = 6.0, 16.0, 4.0
# Looks, an answer of the API and two shared cores: how much later than its bound a verdict may be.
LATE = 12.0

Port = Callable[[], int]


class Shared:
    """One engine for many cases: started when first asked for, and anew when a case has broken it."""

    def __init__(self, port: int, home: Path, *arguments: str, **options: Any) -> None:
        self._engine = lab.vllm(port, home / "engine.log", *arguments, **options)

    def ready(self) -> lab.Engine:
        """The engine, serving."""
        process = self._engine.process
        if process is None or process.poll() is not None or not lab.answers(self._engine.port):
            self._engine.stop()
            self._engine.start()
            # The first request of a process compiles kernels; that is no part of any case.
            lab.send(self._engine, 1, tokens=20)[0].join(180)
        return self._engine

    def stop(self) -> None:
        """End it."""
        self._engine.stop()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, free_port: Port) -> Iterator[Shared]:
    engine = Shared(free_port(), tmp_path_factory.mktemp("vllm"), "--max-num-seqs", str(SLOTS))
    yield engine
    engine.stop()


@pytest.fixture
def vllm(shared: Shared) -> lab.Engine:
    return shared.ready()


@pytest.fixture
def own(tmp_path: Path, free_port: Port) -> Iterator[Callable[..., lab.Engine]]:
    """Engines of this case alone."""
    started: list[lab.Engine] = []

    def start(*arguments: str, **options: Any) -> lab.Engine:
        engine = lab.vllm(free_port(), tmp_path / f"engine{len(started)}.log", *arguments, **options)
        started.append(engine)
        engine.start()
        lab.send(engine, 1, tokens=20)[0].join(180)
        return engine

    yield start
    for engine in started:
        engine.stop()


@pytest.fixture
def judged(tmp_path: Path, free_port: Port) -> Callable[..., Exporter]:
    """An exporter for one target named ``vllm``, or for those given."""

    def make(engine: lab.Engine, *targets: dict[str, Any], **canary: Any) -> Exporter:
        defaults = {**IMPATIENT, "canary": {**IMPATIENT["canary"], "model": engine.model, **canary}}
        return Exporter(tmp_path, free_port(), targets or [{"name": "vllm", "url": engine.url}], defaults)

    return make


def verified(said: Said) -> bool:
    return said.state == "idle" and said.target["idle_verified_at"] is not None


def lane_is(lane: str, state: str) -> Callable[[Said], bool]:
    return lambda said: said.lanes.get(lane, {}).get("state") == state


def ended(requests: list[lab.Request]) -> None:
    for request in requests:
        request.abort()


def found_stuck(exporter: Exporter, watch: Watch, target: str = "vllm") -> Said:
    """It is stalled first, stuck at its bound and not before, and every surface says so."""
    watch.until("stalled", STALLED + LATE)
    stuck = watch.until("stuck", STUCK + SILENT + LATE)
    assert stuck.progress == 0
    assert max(lane["stalled_seconds"] for lane in stuck.lanes.values()) >= STUCK
    assert exporter.metric("llm_engine_progress", target=target) == 0
    assert exporter.metric("llm_health_state", target=target, llm_health_state="stuck") == 1
    assert exporter.probe(target, "live")[0] == 503
    return stuck


def test_idle_is_verified_by_a_canary(vllm: lab.Engine, judged: Callable[..., Exporter], record: Record) -> None:
    with judged(vllm) as exporter, watching(exporter, "vllm") as watch:
        first = watch.until(verified, 15)
        watch.stays(20)
        record(ENGINE, "idle", watch, "idle, verified", first.t)
        assert watch.states(first.t) == ["idle"]
        assert 2 <= exporter.canaries("vllm") <= 5
        assert exporter.probe("vllm", "live")[0] == exporter.probe("vllm", "ready")[0] == 200


def test_busy_sends_no_request(vllm: lab.Engine, judged: Callable[..., Exporter], record: Record) -> None:
    with judged(vllm) as exporter, watching(exporter, "vllm") as watch:
        first = watch.until(verified, 15)
        before = exporter.canaries("vllm")
        requests = lab.send(vllm, 3, tokens=LONG)
        busy = watch.until("busy", LATE)
        watch.stays(12)
        assert not any(request.ended for request in requests), "the work was too short for this case"
        assert exporter.canaries("vllm") <= before + 1, "one may have been on its way as the work came"
        assert watch.states(busy.t) == ["busy"]
        ended(requests)
        watch.until("idle", LATE)
        record(ENGINE, "busy, then all clients disconnect", watch, "idle, busy, idle; no canary while busy", first.t)


def test_a_full_queue_is_busy_and_never_asked(vllm: lab.Engine, judged: Callable[..., Exporter], record: Record) -> None:
    with judged(vllm) as exporter, watching(exporter, "vllm") as watch:
        first = watch.until(verified, 15)
        requests = lab.send(vllm, 40, tokens=LONG)
        full = watch.until(lambda said: said.state == "busy" and (said.target["held"] or 0) >= 40, LATE)
        before = exporter.canaries("vllm")
        watch.stays(45)
        assert exporter.canaries("vllm") == before
        assert watch.states(full.t) == ["busy"]
        queued = exporter.metric("llm_engine_requests", target="vllm", state="waiting")
        assert queued is not None
        assert queued >= 40 - 3 * SLOTS
        ended(requests)
        watch.until("idle", 2 * LATE)
        record(ENGINE, f"40 requests for {SLOTS} slots, 45 s", watch, "busy all the time; no canary sent", first.t)


def test_stopped_while_busy(vllm: lab.Engine, judged: Callable[..., Exporter], record: Record) -> None:
    (core,) = vllm.processes("VLLM::EngineCore")
    with judged(vllm) as exporter, watching(exporter, "vllm") as watch:
        first = watch.until(verified, 15)
        requests = lab.send(vllm, 3, tokens=LONG)
        watch.until("busy", LATE)
        with lab.stopped(core):
            stuck = found_stuck(exporter, watch)
            assert stuck.target["native_health"] == 200, "vLLM's own health is 200 through a hang"
        watch.until("busy", LATE)
        ended(requests)
        watch.until("idle", 2 * LATE)
        record(ENGINE, "engine process stopped while busy, later goes on", watch, "stalled, stuck, busy again", first.t)
        assert [state for state in watch.states(first.t) if state != "idle"] == ["busy", "stalled", "stuck", "busy"]


def test_worker_stopped_while_busy(vllm: lab.Engine, judged: Callable[..., Exporter], record: Record) -> None:
    (worker,) = vllm.processes("VLLM::Worker")
    with judged(vllm) as exporter, watching(exporter, "vllm") as watch:
        first = watch.until(verified, 15)
        requests = lab.send(vllm, 3, tokens=LONG)
        watch.until("busy", LATE)
        with lab.stopped(worker):
            found_stuck(exporter, watch)
        watch.until("busy", LATE)
        ended(requests)
        watch.until("idle", 2 * LATE)
        record(ENGINE, "worker process stopped while busy, later goes on", watch, "stalled, stuck, busy again", first.t)


def test_stopped_while_idle(vllm: lab.Engine, judged: Callable[..., Exporter], record: Record) -> None:
    (core,) = vllm.processes("VLLM::EngineCore")
    with judged(vllm) as exporter, watching(exporter, "vllm") as watch:
        first = watch.until(verified, 15)
        with lab.stopped(core):
            stuck = watch.until("stuck", 2 * (8 + SILENT) + STUCK + 2 * LATE)
            assert stuck.progress == 0
            requests = lab.send(vllm, 2, tokens=50)
            watch.stays(5)
            assert watch.now.state == "stuck"
        watch.until(verified, 8 + SILENT + LATE)
        for request in requests:
            request.join(60)
        record(
            ENGINE,
            "engine process stopped while idle, later goes on",
            watch,
            "idle, stuck by silent canaries at the bound, idle",
            first.t,
        )
        assert set(watch.states(first.t)) <= {"idle", "stuck", "busy"}


def test_web_server_stopped(vllm: lab.Engine, judged: Callable[..., Exporter], record: Record) -> None:
    with judged(vllm) as exporter, watching(exporter, "vllm") as watch:
        first = watch.until(verified, 15)
        requests = lab.send(vllm, 3, tokens=LONG)
        watch.until("busy", LATE)
        with lab.stopped(vllm.pid):
            watch.until("unreachable", LATE)
            watch.stays(STUCK + SILENT + LATE)
            assert exporter.probe("vllm", "live")[0] == 200
        # It has half a minute of the engine's outputs to catch up with before it answers anybody.
        watch.until(lambda said: said.state in ("busy", "idle"), 60)
        ended(requests)
        watch.until("idle", 2 * LATE)
        record(ENGINE, "web server stopped while the engine works", watch, "unreachable; never down, never stuck", first.t)
        assert not {"down", "stuck", "stalled"} & set(watch.states(first.t))


def test_killed_engine_is_failed_or_down_and_its_restart_is_seen(
    vllm: lab.Engine, judged: Callable[..., Exporter], record: Record
) -> None:
    (core,) = vllm.processes("VLLM::EngineCore")
    with judged(vllm) as exporter, watching(exporter, "vllm") as watch:
        first = watch.until(verified, 15)
        lab.send(vllm, 3, tokens=LONG)
        watch.until("busy", LATE)
        os.kill(core, signal.SIGKILL)
        dead = watch.until(lambda said: said.state in ("failed", "down"), 20)
        watch.until("down", 40)
        assert not {"idle", "stuck", "stalled"} & set(watch.states(dead.t))
        vllm.stop()
        vllm.start()
        back = watch.until("idle", LATE)
        assert back.target["restarts_seen"] == 1
        watch.until(verified, LATE)
        record(ENGINE, "engine process killed, started again", watch, "failed or down; then idle", first.t)


def test_restarted_while_busy(vllm: lab.Engine, judged: Callable[..., Exporter], record: Record) -> None:
    with judged(vllm) as exporter, watching(exporter, "vllm") as watch:
        first = watch.until(verified, 15)
        lab.send(vllm, 3, tokens=LONG)
        watch.until("busy", LATE)
        vllm.stop()
        vllm.start()
        requests = lab.send(vllm, 3, tokens=LONG)
        watch.until("busy", LATE)
        watch.stays(STALLED)
        ended(requests)
        watch.until("idle", 2 * LATE)
        record(ENGINE, "restarted while busy, work at once", watch, "busy, down, busy; one restart seen", first.t)
        assert watch.now.target["restarts_seen"] == 1
        assert not {"stuck", "stalled", "unknown"} & set(watch.states(first.t))


def test_ended_by_sigterm_while_busy(vllm: lab.Engine, judged: Callable[..., Exporter], record: Record) -> None:
    with judged(vllm) as exporter, watching(exporter, "vllm") as watch:
        first = watch.until(verified, 15)
        lab.send(vllm, 3, tokens=LONG)
        watch.until("busy", LATE)
        os.kill(vllm.pid, signal.SIGTERM)
        watch.until("down", 30)
        record(ENGINE, "SIGTERM while busy", watch, "busy, down; never stuck", first.t)
        assert not {"stuck", "stalled"} & set(watch.states(first.t))


def test_a_solo_prefill_beyond_both_bounds_is_not_stuck(
    own: Callable[..., lab.Engine], judged: Callable[..., Exporter], record: Record
) -> None:
    engine = own("--max-num-batched-tokens", "1024", model="slow")
    with judged(engine) as exporter, watching(exporter, "vllm") as watch:
        first = watch.until(verified, 20)
        before = exporter.canaries("vllm")
        (request,) = lab.send(engine, 1, prompt=30000, tokens=1)
        watch.until("busy", LATE)
        request.join(600)
        assert request.status == 200
        assert request.seconds is not None
        assert request.seconds > 45, "the prompt was too short for this case: it must outlast both bounds"
        watch.until("idle", LATE)
        record(
            ENGINE, "one prompt of 30,000 tokens, nothing else", watch, "busy; at most briefly stalled, never stuck",
            first.t, note=f"prefill took {request.seconds:.0f} s",
        )  # fmt: skip
        assert set(watch.states(first.t)) <= {"idle", "busy", "stalled"}
        assert watch.longest("stalled") < 2 * STALLED
        assert exporter.canaries("vllm") <= before + 2


def test_two_api_servers(own: Callable[..., lab.Engine], judged: Callable[..., Exporter], record: Record) -> None:
    engine = own("--api-server-count", "2")
    (core,) = engine.processes("VLLM::EngineCore")
    with judged(engine) as exporter, watching(exporter, "vllm") as watch:
        first = watch.until(verified, 20)
        requests = lab.send(engine, 4, tokens=LONG)
        watch.until("busy", LATE)
        watch.stays(8)
        with lab.stopped(core):
            found_stuck(exporter, watch)
        watch.until("busy", LATE)
        ended(requests)
        watch.until("idle", 2 * LATE)
        record(ENGINE, "two API servers, engine stopped while busy", watch, "stalled, stuck, busy again", first.t)
        assert set(watch.states(first.t)) <= {"idle", "busy", "stalled", "stuck"}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, free_port: Port) -> Iterator[Shared]:
    engine = Shared(free_port(), tmp_path_factory.mktemp("pair"), "--data-parallel-size", "2", model="slow")
    yield engine
    engine.stop()


def to_rank(engine: lab.Engine, rank: int, count: int = 2, tokens: int = LONG) -> list[lab.Request]:
    return lab.send(engine, count, tokens=tokens, headers={"X-data-parallel-rank": str(rank)})


def test_one_rank_stopped_while_both_are_busy(pair: Shared, judged: Callable[..., Exporter], record: Record) -> None:
    engine = pair.ready()
    rank1 = engine.processes("VLLM::EngineCore")[1]
    with judged(engine) as exporter, watching(exporter, "vllm") as watch:
        first = watch.until(lambda said: set(said.lanes) == {"0", "1"} and verified(said), 30)
        requests = [*to_rank(engine, 0), *to_rank(engine, 1)]
        watch.until(lambda said: lane_is("0", "busy")(said) and lane_is("1", "busy")(said), LATE)
        with lab.stopped(rank1):
            watch.until(lane_is("1", "stalled"), STALLED + LATE)
            stuck = watch.until(lane_is("1", "stuck"), STUCK + SILENT + LATE)
            assert stuck.state == "stuck", "the worst lane speaks for the target"
            assert stuck.lanes["0"]["state"] in ("busy", "idle")
            assert exporter.metric("llm_engine_progress", target="vllm", lane="1") == 0
            assert exporter.metric("llm_engine_progress", target="vllm", lane="0") == 1
        watch.until(lane_is("1", "busy"), LATE)
        ended(requests)
        watch.until("idle", 2 * LATE)
        record(
            ENGINE, "data parallel 2, rank 1 stopped while both are busy", watch,
            "rank 1 stalled, stuck by a canary pinned to it, busy again; rank 0 never", first.t, lane="1",
        )  # fmt: skip
        assert not {"stalled", "stuck", "unknown"} & set(watch.states(first.t, lane="0"))


def test_one_rank_stopped_while_both_are_idle(pair: Shared, judged: Callable[..., Exporter], record: Record) -> None:
    engine = pair.ready()
    rank1 = engine.processes("VLLM::EngineCore")[1]
    for rank in (0, 1):
        to_rank(engine, rank, 1, tokens=10)[0].join(60)
    with judged(engine) as exporter, watching(exporter, "vllm") as watch:
        first = watch.until(lambda said: set(said.lanes) == {"0", "1"} and verified(said), 30)
        with lab.stopped(rank1):
            watch.until(lane_is("1", "stuck"), 4 * (8 + SILENT) + STUCK + LATE)
        watch.until(lane_is("1", "idle"), 4 * 8 + SILENT + LATE)
        record(
            ENGINE, "data parallel 2, rank 1 stopped while both are idle", watch,
            "rank 1 stuck by silent canaries pinned to it, idle again; rank 0 never", first.t, lane="1",
        )  # fmt: skip
        assert not {"stalled", "stuck", "unknown"} & set(watch.states(first.t, lane="0"))


def test_statistics_off_is_unknown(own: Callable[..., lab.Engine], judged: Callable[..., Exporter], record: Record) -> None:
    engine = own("--disable-log-stats")
    with judged(engine) as exporter, watching(exporter, "vllm") as watch:
        first = watch.until("unknown", 15)
        requests = lab.send(engine, 6, tokens=3000)
        watch.stays(STUCK)
        ended(requests)
        record(ENGINE, "`--disable-log-stats`", watch, "unknown, with the missing series and the mend", first.t)
        assert watch.states(first.t) == ["unknown"]
        assert "--disable-log-stats" in watch.now.reason
        assert "vllm:iteration_tokens_total_count" in watch.now.reason


def test_api_key(own: Callable[..., lab.Engine], judged: Callable[..., Exporter], record: Record, tmp_path: Path) -> None:
    engine = own(key=KEY)
    (core,) = engine.processes("VLLM::EngineCore")
    secret = tmp_path / "key"
    secret.write_text(KEY + "\n")
    keyed = {"name": "keyed", "url": engine.url, "canary": {"api_key_file": str(secret)}}
    with (
        judged(engine, {"name": "keyless", "url": engine.url}, keyed) as exporter,
        watching(exporter, "keyed") as watch,
        watching(exporter, "keyless") as without,
    ):
        first = watch.until(verified, 20)
        assert not verified(without.now)
        requests = lab.send(engine, 3, tokens=LONG)
        watch.until("busy", LATE)
        with lab.stopped(core):
            watch.until("stuck", STUCK + SILENT + 2 * LATE)
            cannot = without.until(lambda said: "cannot confirm: 401" in said.reason, LATE)
            assert cannot.state == "stalled"
            without.stays(SILENT + 2)
            assert "stuck" not in without.states()
            assert exporter.metric("llm_canary_available", target="keyless") == 0
            assert exporter.metric("llm_canary_available", target="keyed") == 1
        watch.until("busy", LATE)
        ended(requests)
        watch.until("idle", 2 * LATE)
        record(
            ENGINE, "`--api-key`, engine stopped while busy", watch,
            "with the key: stalled, stuck; without: stalled, cannot confirm: 401", first.t,
            note=f"without: {' → '.join(without.states(first.t))}",
        )  # fmt: skip


def test_paused_on_purpose(own: Callable[..., lab.Engine], judged: Callable[..., Exporter], record: Record) -> None:
    engine = own(env={"VLLM_SERVER_DEV_MODE": "1"})
    with judged(engine) as exporter, watching(exporter, "vllm") as watch:
        first = watch.until(verified, 20)
        requests = lab.send(engine, 3, tokens=LONG)
        watch.until("busy", LATE)
        assert lab.post(engine.port, "/pause?mode=keep")[0] == 200
        watch.stays(STUCK + SILENT + LATE)
        assert lab.post(engine.port, "/resume")[0] == 200
        watch.until("busy", LATE)
        ended(requests)
        watch.until("idle", 2 * LATE)
        record(
            ENGINE,
            "`/pause?mode=keep` with work held (development mode)",
            watch,
            "sleeping, busy again; never stuck",
            first.t,
        )
        assert "stuck" not in watch.states(first.t)
        assert "sleeping" in watch.states(first.t)
