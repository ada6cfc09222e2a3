"""The real exporter judges a real llama-server: no healthy server is called stuck, and every hang is found."""

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

ENGINE = "llama-server b11434"
LONG = 12000
KEY = "sk-real-engine"
STALLED, STUCK, SILENT = 6.0, 16.0, 4.0
LATE = 12.0


@pytest.fixture
def llama(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Callable[..., lab.Engine]]:
    """Starts llama-servers; they load in a second, so every case has its own."""
    started: list[lab.Engine] = []

    def start(*arguments: str, wait: bool = True, **options: Any) -> lab.Engine:
        engine = lab.llamacpp(free_port(), tmp_path / f"engine{len(started)}.log", *arguments, **options)
        started.append(engine)
        if wait:
            engine.start()
        return engine

    yield start
    for engine in started:
        engine.stop()


@pytest.fixture
def judged(tmp_path: Path, free_port: Callable[[], int]) -> Callable[..., Exporter]:
    def make(engine: lab.Engine, *targets: dict[str, Any], **settings: Any) -> Exporter:
        return Exporter(tmp_path, free_port(), targets or [{"name": "llama", "url": engine.url}], {**IMPATIENT, **settings})

    return make


def verified(said: Said) -> bool:
    return said.state == "idle" and said.target["idle_verified_at"] is not None


def ended(requests: list[lab.Request]) -> None:
    for request in requests:
        request.abort()


def found_stuck(exporter: Exporter, watch: Watch, target: str = "llama") -> Said:
    watch.until("stalled", STALLED + LATE)
    stuck = watch.until("stuck", STUCK + SILENT + LATE)
    assert stuck.progress == 0
    assert max(lane["stalled_seconds"] for lane in stuck.lanes.values()) >= STUCK
    assert exporter.metric("llm_engine_progress", target=target) == 0
    assert exporter.probe(target, "live")[0] == 503
    return stuck


def test_idle_busy_idle(llama: Callable[..., lab.Engine], judged: Callable[..., Exporter], record: Record) -> None:
    engine = llama()
    with judged(engine) as exporter, watching(exporter, "llama") as watch:
        first = watch.until(verified, 15)
        requests = lab.send(engine, 2, tokens=LONG)
        busy = watch.until("busy", LATE)
        before = exporter.canaries("llama")
        watch.stays(10)
        assert not any(request.ended for request in requests), "the work was too short for this case"
        assert exporter.canaries("llama") <= before + 1, "one may have been on its way as the work came"
        assert watch.states(busy.t) == ["busy"]
        ended(requests)
        watch.until("idle", LATE)
        record(ENGINE, "idle, busy, then all clients disconnect", watch, "idle, busy, idle; no canary while busy", first.t)


def test_a_full_queue_is_busy_and_never_asked(
    llama: Callable[..., lab.Engine], judged: Callable[..., Exporter], record: Record
) -> None:
    # More connections than its web server has threads would be `unreachable`: that is the next case's matter.
    engine = llama("--threads-http", "32")
    with judged(engine) as exporter, watching(exporter, "llama") as watch:
        first = watch.until(verified, 15)
        requests = lab.send(engine, 16, tokens=LONG)
        full = watch.until(lambda said: said.state == "busy" and (said.target["held"] or 0) >= 16, 2 * LATE)
        before = exporter.canaries("llama")
        watch.stays(30)
        assert exporter.canaries("llama") == before
        assert watch.states(full.t) == ["busy"]
        ended(requests)
        watch.until("idle", 3 * LATE)
        record(ENGINE, "16 requests for 2 slots, 30 s", watch, "busy all the time; no canary sent", first.t)


def test_more_clients_than_web_threads_is_never_stuck(
    llama: Callable[..., lab.Engine], judged: Callable[..., Exporter], record: Record
) -> None:
    engine = llama("--threads-http", "4")
    with judged(engine) as exporter, watching(exporter, "llama") as watch:
        first = watch.until(verified, 15)
        requests = lab.send(engine, 12, tokens=LONG)
        watch.stays(STUCK + SILENT + LATE)
        assert not {"stuck", "down", "failed"} & set(watch.states(first.t))
        ended(requests)
        watch.until("idle", 6 * LATE)
        record(ENGINE, "12 long requests for 4 web threads", watch, "busy or unreachable; never stuck or down", first.t)


def test_engine_thread_frozen_while_busy(
    llama: Callable[..., lab.Engine], judged: Callable[..., Exporter], record: Record
) -> None:
    engine = llama()
    with judged(engine) as exporter, watching(exporter, "llama") as watch:
        first = watch.until(verified, 15)
        requests = lab.send(engine, 2, tokens=LONG)
        watch.until("busy", LATE)
        with lab.frozen_in_decode(engine):
            stuck = found_stuck(exporter, watch)
            assert stuck.target["native_health"] == 200
        watch.until("busy", LATE)
        ended(requests)
        watch.until("idle", LATE)
        record(ENGINE, "decoding thread frozen while busy, later goes on", watch, "stalled, stuck, busy again", first.t)
        assert set(watch.states(first.t)) <= {"idle", "busy", "stalled", "stuck"}


def test_engine_thread_frozen_while_idle(
    llama: Callable[..., lab.Engine], judged: Callable[..., Exporter], record: Record
) -> None:
    engine = llama()
    with judged(engine) as exporter, watching(exporter, "llama") as watch:
        first = watch.until(verified, 15)
        with lab.frozen_thread(engine.pid):
            hung = watch.until("unreachable", LATE)
            assert "/health answers 200" in hung.reason
            requests = lab.send(engine, 2, tokens=100)
            watch.stays(STUCK + LATE)
        for request in requests:
            request.join(60)
        watch.until(verified, 8 + SILENT + LATE)
        record(
            ENGINE, "decoding thread frozen while idle: `/metrics` hangs with it", watch,
            "unreachable, with what /health says; never down", first.t,
        )  # fmt: skip
        assert not {"down", "stuck"} & set(watch.states(first.t))


def test_process_stopped_while_busy(
    llama: Callable[..., lab.Engine], judged: Callable[..., Exporter], record: Record
) -> None:
    engine = llama()
    with judged(engine) as exporter, watching(exporter, "llama") as watch:
        first = watch.until(verified, 15)
        requests = lab.send(engine, 2, tokens=LONG)
        watch.until("busy", LATE)
        with lab.stopped(engine.pid):
            watch.until("unreachable", LATE)
            watch.stays(STUCK + LATE)
            assert exporter.probe("llama", "live")[0] == 200
        watch.until("busy", LATE)
        ended(requests)
        watch.until("idle", LATE)
        record(ENGINE, "whole process stopped while busy", watch, "unreachable; never down, never stuck", first.t)
        assert not {"down", "stuck"} & set(watch.states(first.t))


def test_killed_and_restarted_while_busy(
    llama: Callable[..., lab.Engine], judged: Callable[..., Exporter], record: Record
) -> None:
    engine = llama()
    with judged(engine) as exporter, watching(exporter, "llama") as watch:
        first = watch.until(verified, 15)
        lab.send(engine, 2, tokens=LONG)
        watch.until("busy", LATE)
        os.kill(engine.pid, signal.SIGKILL)
        watch.until("down", LATE)
        watch.stays(3)
        engine.stop()
        engine.start()
        requests = lab.send(engine, 2, tokens=LONG)
        watch.until("busy", LATE)
        ended(requests)
        watch.until(verified, 8 + SILENT + LATE)
        record(
            ENGINE, "killed while busy, started again, work at once", watch, "busy, down, busy; one restart seen", first.t
        )
        assert watch.now.target["restarts_seen"] == 1
        assert not {"stuck", "stalled", "unknown"} & set(watch.states(first.t))


def test_restarted_between_two_looks(
    llama: Callable[..., lab.Engine], judged: Callable[..., Exporter], record: Record
) -> None:
    engine = llama()
    with judged(engine, interval="6s", timeout="5s", stalled_after="12s") as exporter, watching(exporter, "llama") as watch:
        first = watch.until(verified, 25)
        lab.send(engine, 2, tokens=LONG)
        watch.until("busy", 7 + LATE)
        looked = watch.now.target["last_observation"]
        watch.until(lambda said: said.target["last_observation"] != looked, 7 + LATE)
        engine.stop()
        engine.start()
        requests = lab.send(engine, 2, tokens=LONG)
        watch.until(lambda said: said.target["restarts_seen"] == 1, 7 + LATE)
        ended(requests)
        watch.until("idle", 7 + LATE)
        record(ENGINE, "restarted between two looks", watch, "busy, and the restart is seen by the start header", first.t)
        assert not {"stuck", "stalled", "unknown"} & set(watch.states(first.t))


def test_long_prefill_on_a_slow_model(
    llama: Callable[..., lab.Engine], judged: Callable[..., Exporter], record: Record
) -> None:
    engine = llama("--batch-size", "2048", "--ubatch-size", "2048", "--parallel", "1", model="slow")
    with judged(engine) as exporter, watching(exporter, "llama") as watch:
        first = watch.until(verified, 20)
        (request,) = lab.send(engine, 1, prompt=20000, tokens=1)
        request.join(540)
        assert request.status == 200
        assert request.seconds is not None
        assert request.seconds > 60, "the prompt was too short for this case"
        watch.until("idle", LATE)
        record(
            ENGINE, "one prompt of 20,000 tokens in batches of 2,048", watch,
            "busy, unreachable or briefly stalled; never stuck", first.t, note=f"prefill took {request.seconds:.0f} s",
        )  # fmt: skip
        assert set(watch.states(first.t)) <= {"idle", "busy", "stalled", "unreachable"}


def test_loading_is_starting(llama: Callable[..., lab.Engine], judged: Callable[..., Exporter], record: Record) -> None:
    engine = llama(wait=False, model="slow")
    with judged(engine, interval="100ms", timeout="90ms") as exporter, watching(exporter, "llama") as watch:
        down = watch.until(lambda said: said.state in ("down", "starting"), 15)
        engine.start()
        watch.until("idle", LATE)
        record(ENGINE, "from no process through loading", watch, "down, starting while it loads, idle", down.t)
        assert {"busy", "stuck", "failed"}.isdisjoint(watch.states(down.t))
        history = [change["state"] for change in exporter.api("/api/v1/targets/llama")["history"]]
        assert "starting" in history


def test_metrics_not_switched_on(llama: Callable[..., lab.Engine], judged: Callable[..., Exporter], record: Record) -> None:
    engine = llama(env={"NO_METRICS": "1"})
    with judged(engine) as exporter, watching(exporter, "llama") as watch:
        first = watch.until("unknown", 15)
        requests = lab.send(engine, 1, tokens=LONG)
        watch.stays(10)
        ended(requests)
        record(ENGINE, "without `--metrics`", watch, "unknown, with the mend", first.t)
        assert watch.states(first.t) == ["unknown"]
        assert "--metrics" in watch.now.reason


def test_api_key(llama: Callable[..., lab.Engine], judged: Callable[..., Exporter], record: Record, tmp_path: Path) -> None:
    engine = llama(key=KEY)
    secret = tmp_path / "key"
    secret.write_text(KEY + "\n")
    keyed = {
        "name": "keyed",
        "url": engine.url,
        "bearer_token_file": str(secret),
        "canary": {"api_key_file": str(secret)},
    }
    with (
        judged(engine, {"name": "keyless", "url": engine.url}, keyed) as exporter,
        watching(exporter, "keyed") as watch,
        watching(exporter, "keyless") as without,
    ):
        first = watch.until(verified, 15)
        requests = lab.send(engine, 2, tokens=LONG)
        watch.until("busy", LATE)
        with lab.frozen_in_decode(engine):
            found_stuck(exporter, watch, "keyed")
        watch.until("busy", LATE)
        ended(requests)
        watch.until("idle", LATE)
        record(
            ENGINE, "`--api-key`, frozen while busy", watch, "with the key: stalled, stuck; without: unknown, 401",
            first.t, note=f"without: {' → '.join(without.states(first.t))}",
        )  # fmt: skip
        assert without.states(first.t) == ["unknown"]
        assert "401" in without.now.reason
        assert "bearer_token_file" in without.now.reason


def test_asleep_is_not_woken(llama: Callable[..., lab.Engine], judged: Callable[..., Exporter], record: Record) -> None:
    engine = llama("--sleep-idle-seconds", "3")
    with judged(engine, canary={**IMPATIENT["canary"], "every": "20s"}) as exporter, watching(exporter, "llama") as watch:
        asleep = watch.until("sleeping", 15)
        before = exporter.canaries("llama")
        watch.stays(25)
        assert exporter.canaries("llama") == before, "a request would have woken it"
        assert watch.states(asleep.t) == ["sleeping"]
        assert exporter.probe("llama", "ready")[0] == 503
        assert exporter.probe("llama", "live")[0] == 200
        lab.send(engine, 1, tokens=50)[0].join(60)
        watch.until(lambda said: said.state in ("idle", "busy"), LATE)
        watch.until("sleeping", 3 + LATE)
        record(ENGINE, "`--sleep-idle-seconds`", watch, "sleeping, never woken by us; ready 503, live 200", asleep.t)


def test_router_mode(llama: Callable[..., lab.Engine], judged: Callable[..., Exporter], record: Record) -> None:
    cache = Path(os.environ.get("STUCKPROOF_CACHE") or Path.home() / ".cache" / "stuckproof")
    engine = llama("--models-dir", str(cache / "engines" / "llamacpp-11434" / "models"))
    # Without autoload=false a look would load the model, and every further look would keep it.
    one = {"name": "small", "url": engine.url, "metrics_path": "/metrics?model=small&autoload=false", "engine": "llamacpp"}
    with (
        judged(engine, {"name": "router", "url": engine.url}, one) as exporter,
        watching(exporter, "router") as router,
        watching(exporter, "small") as watch,
    ):
        first = watch.until("sleeping", 15)
        watch.stays(10)
        assert len(engine.session()) == 1, "our looks have loaded a model"
        router.until("unknown", LATE)
        assert "/metrics?model=" in router.now.reason
        requests = lab.send(engine, 2, tokens=LONG // 2)
        watch.until("busy", 2 * LATE)
        # The router does not tell a model that its client has gone: the work runs to its end.
        for request in requests:
            request.join(180)
        watch.until("idle", LATE)
        record(
            ENGINE, "router mode: one model named in `metrics_path`", watch, "sleeping until a request loads it, busy, idle",
            first.t, note="the router itself: unknown, with the mend",
        )  # fmt: skip
        assert watch.states(first.t)[0] == "sleeping"
