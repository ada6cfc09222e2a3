"""One target's loop under injected time, against a real HTTP server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from exporter import hostile
from exporter.engine_server import Engine, serving
from exporter.parts import parts
from exporter.virtual_time import VirtualClock, until
from llm_common.guard import Guard
from llm_exporter.judge import State
from llm_exporter.loop_lag import LoopLag
from llm_exporter.monitor import Monitor
from llm_exporter.recording import Recorder, lines_of
from llm_exporter.replay import replay
from llm_exporter.scrape import Scraper
from llm_exporter.target_config import Canary, Target, TargetOptions

QUICK = TargetOptions(
    interval=1.0, timeout=0.5, stalled_after=3.0, stuck_after=10.0, start_grace=0.0,
    canary=Canary(timeout=0.3, every=60.0),
)  # fmt: skip


@dataclass
class Bench:
    """The real parts, on one injected clock."""

    clock: VirtualClock
    scraper: Scraper
    guard: Guard

    def monitor(self, engine: Engine, options: TargetOptions = QUICK, **more: object) -> Monitor:
        target = Target(name="t", url=engine.base, options=options)
        return Monitor(target, self.scraper, self.clock, self.guard, **more)  # type: ignore[arg-type]

    async def run(self, monitor: Monitor) -> None:
        self.guard.spawn("monitor:t", monitor.run)
        await self.clock.advance(monitor.interval)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with parts() as made:
        yield Bench(*made)


async def test_a_busy_engine_is_busy_for_three_bounds_and_no_request_is_sent(bench: Bench) -> None:
    async with serving(Engine(running=12, waiting=40)) as engine:
        monitor = bench.monitor(engine)
        await bench.run(monitor)
        for _ in range(30):
            engine.work()
            await bench.clock.advance(1.0)
        assert monitor.snapshot.verdict.state is State.BUSY
        assert monitor.snapshot.verdict.sentence.endswith("no request sent")
        assert "12 running, 40 waiting" in monitor.snapshot.verdict.sentence
        assert engine.asked["/v1/completions"] == 0
        assert {change.state for change in monitor.snapshot.timeline} == {State.BUSY}
        assert monitor.snapshot.transitions == {}


async def test_a_hung_engine_is_stuck_after_its_bound_and_one_silent_canary(bench: Bench) -> None:
    async with serving(Engine(running=4)) as engine:
        monitor = bench.monitor(engine)
        await bench.run(monitor)
        engine.work()
        await bench.clock.advance(1.0)
        engine.canary_hangs = True
        for _ in range(9):
            await bench.clock.advance(1.0)
        assert monitor.snapshot.verdict.state is State.STALLED
        assert engine.asked["/v1/completions"] == 0
        await bench.clock.advance(2.0)
        await until(lambda: engine.asked["/v1/completions"] == 1, "the last question")
        await until(lambda: monitor.snapshot.verdict.state is State.STUCK, "stuck")
        for _ in range(5):
            await bench.clock.advance(1.0)
        assert engine.asked["/v1/completions"] == 1
        assert monitor.snapshot.canaries == {"silent": 1}
        assert monitor.snapshot.transitions == {"stalled": 1, "stuck": 1}
        assert engine.canary_headers[0]["User-Agent"].startswith("stuckproof-canary/")
        assert engine.canary_headers[0]["X-Request-Id"].startswith("stuckproof-canary-")
        assert engine.canary_headers[0]["X-data-parallel-rank"] == "0"
        assert engine.canary_bodies[0] == {
            "model": "m", "prompt": [1], "max_tokens": 1, "temperature": 0, "stream": False,
        }  # fmt: skip
        await until(lambda: engine.cancelled == 1, "the canary is cancelled at the server")


@pytest.mark.parametrize("status", [401, 404, 500])
async def test_an_answer_that_no_model_gave_confirms_nothing(bench: Bench, status: int) -> None:
    async with serving(Engine(running=4, canary_status=status)) as engine:
        monitor = bench.monitor(engine)
        await bench.run(monitor)
        engine.work()
        for _ in range(20):
            await bench.clock.advance(1.0)
            await asyncio.sleep(0.005)
        assert engine.asked["/v1/completions"] >= 1
        assert monitor.snapshot.verdict.state is State.STALLED
        assert f"cannot confirm: {status}" in monitor.snapshot.verdict.reason
        assert monitor.snapshot.verdict.canary_available is False


async def test_an_idle_engine_is_verified_by_one_canary_and_not_asked_again_soon(bench: Bench) -> None:
    async with serving(Engine(steps=5, tokens=9)) as engine:
        monitor = bench.monitor(engine)
        await bench.run(monitor)
        await until(lambda: "verified" in monitor.snapshot.verdict.reason and monitor.snapshot.canaries, "verified")
        for _ in range(30):
            await bench.clock.advance(1.0)
        assert monitor.snapshot.verdict.state is State.IDLE
        assert monitor.snapshot.verified_at is not None
        assert engine.asked["/v1/completions"] == 1


async def test_an_exporter_that_sends_no_canaries_sends_none_and_never_says_stuck(bench: Bench) -> None:
    async with serving(Engine(running=4, steps=1, tokens=1)) as engine:
        monitor = bench.monitor(engine, sends_canaries=False)
        await bench.run(monitor)
        for _ in range(30):
            await bench.clock.advance(1.0)
        assert engine.asked["/v1/completions"] == 0
        assert monitor.snapshot.verdict.state is State.STALLED


async def test_two_exporters_agree_but_for_the_last_question_that_only_one_may_ask(bench: Bench) -> None:
    async with serving(Engine(running=4)) as engine:
        first, second = bench.monitor(engine), bench.monitor(engine, sends_canaries=False)

        async def both() -> set[State]:
            bench.clock.now += 1.0
            return {(await monitor.observe()).verdict.state for monitor in (first, second)}

        for _ in range(12):
            engine.work()
            assert await both() == {State.BUSY}
        engine.canary_hangs = True
        states = [await both() for _ in range(9)]
        assert states[0] == {State.BUSY}
        assert states[-1] == {State.STALLED}
        assert all(len(seen) == 1 for seen in states)
        await both()
        await until(lambda: first.snapshot.verdict.state is State.STUCK, "the last question is answered by silence")
        assert await both() == {State.STUCK, State.STALLED}
        assert "this exporter sends no canaries" in second.snapshot.verdict.reason
        assert engine.asked["/v1/completions"] == 1
        engine.work()
        assert await both() == {State.BUSY}


async def test_one_request_at_a_time_even_while_proofs_are_demanded(bench: Bench) -> None:
    async with serving(Engine(running=4)) as engine:
        monitor = bench.monitor(engine)
        await bench.run(monitor)
        proofs = [asyncio.create_task(monitor.prove()) for _ in range(20)]
        await bench.clock.advance(3.0)
        await asyncio.gather(*proofs)
        assert engine.most_in_flight == 1


async def test_callers_share_a_proof_and_the_next_one_waits_an_interval(bench: Bench) -> None:
    async with serving(Engine(running=4)) as engine:
        monitor = bench.monitor(engine)
        engine.work()
        before = engine.asked["/metrics"]
        first = [asyncio.create_task(monitor.prove()) for _ in range(10)]
        await bench.clock.settle()
        await bench.clock.advance(1.0, sleepers=0)
        snapshots = await asyncio.gather(*first)
        assert all(snapshot is snapshots[0] for snapshot in snapshots)
        assert engine.asked["/metrics"] == before + 2  # progress needs two looks, one pause apart
        engine.work()
        await monitor.prove()
        engine.work()
        again = asyncio.create_task(monitor.prove())
        await bench.clock.settle()
        assert not again.done()
        asked = engine.asked["/metrics"]
        await bench.clock.advance(1.0, sleepers=0)
        assert (await again).looked_at == bench.clock.unix()
        assert engine.asked["/metrics"] == asked + 1


async def test_a_proof_of_a_busy_engine_needs_one_fresh_look(bench: Bench) -> None:
    async with serving(Engine(running=4)) as engine:
        monitor = bench.monitor(engine)
        await bench.run(monitor)
        for _ in range(3):
            engine.work()
            await bench.clock.advance(1.0)
        engine.work()
        asked = engine.asked["/metrics"]
        snapshot = await monitor.prove()
        assert engine.asked["/metrics"] == asked + 1
        assert snapshot.looked_at == bench.clock.unix()
        assert snapshot.verdict.state is State.BUSY


async def test_a_restart_is_seen_and_asks_anew_who_answers(bench: Bench) -> None:
    async with serving(Engine(running=1)) as engine:
        monitor = bench.monitor(engine)
        await bench.run(monitor)
        engine.work()
        await bench.clock.advance(1.0)
        versions = engine.asked["/version"]
        engine.started += 500
        engine.steps = engine.tokens = 0
        await bench.clock.advance(1.0)
        await bench.clock.advance(1.0)
        assert monitor.snapshot.restarts == 1
        assert monitor.snapshot.restarted_at is not None
        assert engine.asked["/version"] > versions


async def test_side_endpoints_that_are_not_there_are_not_asked_again(bench: Bench) -> None:
    async with serving(Engine(running=1)) as engine:
        monitor = bench.monitor(engine)
        await bench.run(monitor)
        for _ in range(10):
            engine.work()
            await bench.clock.advance(1.0)
        assert engine.asked["/load"] == engine.asked["/is_sleeping"] == engine.asked["/is_paused"] == 1
        assert engine.asked["/metrics"] == 11
        assert engine.asked["/v1/models"] == 1


async def test_what_was_refused_is_asked_for_again_with_another_configuration(bench: Bench) -> None:
    async with serving(Engine(running=1)) as engine:
        monitor = bench.monitor(engine)
        await bench.run(monitor)
        await bench.clock.advance(2.0)
        monitor.reconfigure(replace(monitor.target, labels={"team": "x"}))
        await bench.clock.advance(2.0)
        assert engine.asked["/is_sleeping"] == 1
        monitor.reconfigure(replace(monitor.target, options=replace(QUICK, maintenance=True)))
        await bench.clock.advance(2.0)
        assert engine.asked["/is_sleeping"] == 2


async def test_failed_looks_have_their_reason_counted_and_never_old_numbers(bench: Bench) -> None:
    async with serving(Engine(running=1)) as engine:
        monitor = bench.monitor(engine)
        await bench.run(monitor)
        for attribute, value, state, reason in (
            ("metrics_hang", True, State.UNREACHABLE, "timeout"),
            ("status", 401, State.UNKNOWN, "http"),
            ("page", "python_gc_objects_collected_total 1\n", State.UNKNOWN, "unreadable"),
        ):
            good = getattr(engine, attribute)
            setattr(engine, attribute, value)
            await bench.clock.advance(1.0)
            assert monitor.snapshot.verdict.state is state
            assert monitor.snapshot.errors[reason] == 1
            assert monitor.snapshot.lanes == ()
            setattr(engine, attribute, good)
            engine.work()
            await bench.clock.advance(1.0)
            assert monitor.snapshot.verdict.state is State.BUSY
    await bench.clock.advance(1.0)
    assert monitor.snapshot.verdict.state is State.DOWN
    assert monitor.snapshot.errors["refused"] == 1
    assert monitor.snapshot.unserved_at == monitor.snapshot.looked_at


async def test_a_timeout_that_our_own_loop_caused_is_not_judged(bench: Bench) -> None:
    async with serving(Engine(running=1)) as engine:
        lag = LoopLag(bench.clock)
        monitor = bench.monitor(engine, lag=lag)
        engine.work()
        assert (await monitor.observe()).verdict.state is State.BUSY
        lag.turned_at = bench.clock.now
        lag.note(bench.clock.now, 3.0)
        engine.metrics_hang = True
        assert (await monitor.observe()).verdict.state is State.BUSY
        assert monitor.late == 1
        bench.clock.now += 31.0
        lag.turned_at = bench.clock.now
        assert (await monitor.observe()).verdict.state is State.UNREACHABLE


async def test_an_overloaded_loop_counts_late_looks_and_does_not_try_to_catch_up(bench: Bench) -> None:
    async with serving(Engine(running=1)) as engine:
        monitor = bench.monitor(engine)
        await bench.run(monitor)
        asked = engine.asked["/metrics"]
        await bench.clock.settle()
        engine.work()
        bench.clock.now += 20.0  # nobody was woken for twenty intervals
        await bench.clock.advance(0.0)
        await bench.clock.advance(0.0)
        assert monitor.late >= 1
        assert engine.asked["/metrics"] <= asked + 2


async def test_two_targets_never_affect_each_other(bench: Bench) -> None:
    async with serving(Engine(running=1)) as good, hostile.raw_server(hostile.floods) as bad:
        healthy = bench.monitor(good)
        sick = Monitor(
            Target(name="sick", url=bad, options=replace(QUICK, timeout=0.5)), bench.scraper, bench.clock, bench.guard
        )
        for _ in range(5):
            good.work()
            await asyncio.gather(healthy.observe(), sick.observe())
            bench.clock.now += 1.0
        assert healthy.snapshot.verdict.state is State.BUSY
        assert healthy.snapshot.errors == {}
        assert sick.snapshot.verdict.state in (State.UNKNOWN, State.UNREACHABLE)


async def test_a_changed_configuration_keeps_the_history(bench: Bench) -> None:
    async with serving(Engine(running=1, steps=1, tokens=1)) as engine:
        monitor = bench.monitor(engine)
        await bench.run(monitor)
        for _ in range(5):
            await bench.clock.advance(1.0)
        assert monitor.snapshot.verdict.state is State.STALLED
        before = monitor.snapshot.verdict.lanes[0].flat_since
        monitor.reconfigure(replace(monitor.target, options=replace(QUICK, stalled_after=4.5), labels={"team": "x"}))
        await bench.clock.advance(1.0)
        assert monitor.snapshot.verdict.lanes[0].flat_since == before
        assert monitor.snapshot.target.labels == {"team": "x"}


async def test_what_was_recorded_live_replays_to_the_same_verdicts(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl.gz"
    said = []
    async with serving(Engine(running=4, canary_hangs=True)) as engine:
        recorder = Recorder(path, bench.clock)
        monitor = bench.monitor(engine, recorder=recorder)
        for second in range(16):
            if second < 3:
                engine.work()
            await monitor.observe()
            await until(lambda: not monitor.asking, "the canary has ended")
            said.append((monitor.snapshot.verdict.state, monitor.snapshot.verdict.progress))
            bench.clock.now += 1.0
        recorder.event("end")
        recorder.close()
    replayed = [(seen.verdict.state, seen.verdict.progress) for seen in replay(lines_of(path), QUICK.settings(None))]
    assert said[-1] == (State.STUCK, 0)
    assert replayed[-1] == said[-1]
    assert [state for state, _ in replayed].count(State.STUCK) >= 2
    assert len(replayed) == engine.asked["/metrics"]


async def test_a_page_that_breaks_its_adapter_ends_no_watch_and_is_unknown(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(Engine(running=1)) as engine:
        monitor = bench.monitor(engine)
        await bench.run(monitor)
        engine.work()
        await bench.clock.advance(1.0)
        with monkeypatch.context() as patched:

            def broken(*_: object, **__: object) -> None:
                raise ZeroDivisionError("nobody thought of this page")

            patched.setattr("llm_exporter.monitor.step", broken)
            await bench.clock.advance(1.0)
        assert monitor.snapshot.verdict.state is State.UNKNOWN
        assert "ZeroDivisionError" in monitor.snapshot.verdict.reason
        assert (monitor.snapshot.up, monitor.snapshot.lanes) == (False, ())
        assert (monitor.snapshot.native_status, monitor.snapshot.static_seconds) == (0, None)
        assert monitor.snapshot.errors == {"internal": 1}
        engine.work()
        await bench.clock.advance(1.0)
        assert monitor.snapshot.verdict.state is State.BUSY
        assert bench.guard.healthy


async def test_the_next_proof_waits_a_whole_interval(bench: Bench) -> None:
    async with serving(Engine(running=4)) as engine:
        monitor = bench.monitor(engine, replace(QUICK, interval=15.0))
        for _ in range(2):
            engine.work()
            await monitor.observe()
            bench.clock.now += 1.0
        engine.work()
        await monitor.prove()
        again = asyncio.create_task(monitor.prove())
        await bench.clock.settle()
        await bench.clock.advance(14.9, sleepers=1)
        assert not again.done()
        engine.work()
        await bench.clock.advance(0.2, sleepers=0)
        assert (await again).looked_at is not None
