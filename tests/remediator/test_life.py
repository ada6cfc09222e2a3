"""The life of a restart from alert to proven work, over the real journal: storms, latches, silent nights."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llm_remediator.containers import Process
from llm_remediator.journal_audit import put_notice
from llm_remediator.outcome import Outcome, Status
from llm_remediator.ports import Notice
from llm_remediator.rules import Budget, FleetRules, Mode, Rules
from llm_remediator.service import Delivery, ReceivedAlert, StoreError
from remediator.world import START, World

Make = Callable[..., World]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[World] = []

    def build(*names: str, **settings: Any) -> World:
        world = World(tmp_path, names or ("a", "b"), **settings)
        made.append(world)
        world.open()
        return world

    yield build
    for world in made:
        await world.crash()


async def test_eight_restarts_a_day_become_none(make: Make) -> None:
    """Saturated for hours: requests wait, a watchdog's would time out, and its alert fires all the time."""
    world = make("a", "b")
    stuck = world.alertmanager.alert("a")

    async def always() -> Any:
        return Outcome(Status.OK, (stuck,))

    world.alertmanager.alerts = always  # type: ignore[method-assign]
    await world.looks(24 * 3600, every=300)
    assert world.docker.restarts == []
    assert {reason for _, reason in await world.decisions("a")} == {"state_busy"}


async def test_a_truly_stuck_engine_is_restarted_once(make: Make) -> None:
    world = make()
    world.engines["a"].sick_since = world.clock.now
    await world.looks(3 * 3600)
    assert [name for _, name in world.docker.restarts] == ["a"]
    assert await world.results() == ["recovered"]
    assert world.inbox.events() == ["acted", "verified"]
    counters = world.remediator.counters()  # type: ignore[union-attr]
    assert counters.actions["a", "verified"] == 1
    assert counters.actions["a", "recovered"] == 1
    assert len(counters.downtimes["a"]) == 1


async def test_one_that_never_recovers_spends_its_budget_then_latches_and_pages_once(make: Make) -> None:
    world = make(rules=Rules(rearm_after=0.0))
    world.engines["a"].sick_since = world.clock.now
    world.engines["a"].cured_by_restart = False
    await world.looks(8 * 3600, every=60)
    assert len(world.docker.restarts) == 3
    assert await world.results() == ["relapsed"] * 3
    assert world.inbox.events().count("latched") == 1
    (view, _) = world.remediator.targets()  # type: ignore[union-attr]
    assert view.latched
    assert ("skip", "latched") in await world.decisions("a")
    times = [at for at, _ in world.docker.restarts]
    assert times[1] - times[0] >= 600
    assert times[2] - times[1] >= 1200


async def test_one_that_hangs_in_its_start_is_not_restarted_again(make: Make) -> None:
    """Flat since before the grace ended: a start that hangs is for a person, who is told."""
    world = make(rules=Rules(rearm_after=0.0))
    engine = world.engines["a"]
    engine.sick_since, engine.cured_by_restart, engine.relapses_after = world.clock.now, False, 1.0
    await world.looks(4 * 3600, every=60)
    assert len(world.docker.restarts) == 1
    assert await world.results() == ["relapsed"]
    assert world.inbox.events() == ["acted", "verified", "relapsed"]
    assert ("defer", "flat_since_startup") in await world.decisions("a")


async def test_a_latch_comes_off_by_itself_once(make: Make) -> None:
    world = make(rules=Rules(rearm_after=86400.0))
    world.engines["a"].sick_since = world.clock.now
    world.engines["a"].cured_by_restart = False
    await world.looks(4 * 86400, every=900)
    assert len(world.docker.restarts) == 6
    assert world.inbox.events().count("latched") == 2


async def test_a_person_re_arms(make: Make) -> None:
    world = make(rules=Rules(rearm_after=0.0))
    engine = world.engines["a"]
    engine.sick_since, engine.cured_by_restart = world.clock.now, False
    await world.looks(6 * 3600, every=60)
    assert len(world.docker.restarts) == 3
    engine.cured_by_restart = True
    await world.remediator.rearm("a", by="ann")  # type: ignore[union-attr]
    await world.looks(3600, every=60)
    assert len(world.docker.restarts) == 4
    assert (await world.results())[-1] == "verified"


async def test_a_silent_night_is_no_failure(make: Make) -> None:
    world = make()
    engine = world.engines["a"]
    engine.sick_since, engine.traffic, engine.canary = world.clock.now, False, False
    await world.looks(3600)
    assert await world.results() == ["recovered_unverified"]
    assert not world.remediator.targets()[0].latched  # type: ignore[union-attr]
    assert world.inbox.events() == ["acted", "recovered_unverified"]


async def test_an_answered_canary_is_work(make: Make) -> None:
    world = make()
    world.engines["a"].sick_since, world.engines["a"].traffic = world.clock.now, False
    await world.looks(1800)
    assert await world.results() == ["verified"]


async def test_moved_between_alert_and_act_is_left_alone(make: Make) -> None:
    world = make()
    engine = world.engines["a"]
    engine.sick_since = world.clock.now

    def wakes(patient: Any) -> None:
        patient.sick_since = None

    await world.looks(290, every=29)
    world.exporter.during_proof = wakes
    await world.looks(120)
    assert world.docker.restarts == []
    # The proof itself was still flat; the last check before the call found it moving.
    assert await world.results() in ([], ["withdrawn"])


async def test_restarted_by_another_during_the_proof_is_left_alone(make: Make) -> None:
    world = make()
    engine = world.engines["a"]
    engine.sick_since = world.clock.now - 400

    def restarted(patient: Any) -> None:
        patient.box = replace(patient.box, started_at_raw="a moment ago")

    world.exporter.during_proof = restarted
    await world.look()
    assert world.docker.restarts == []
    assert ("skip", "other_incarnation") in await world.decisions("a")


async def test_exporter_down_is_never_proof(make: Make) -> None:
    world = make()
    world.engines["a"].sick_since = world.clock.now - 400
    world.exporter.reachable = False
    await world.looks(3600, every=120)
    assert world.docker.restarts == []


async def test_a_silence_set_after_the_alert_is_honoured(make: Make) -> None:
    world = make()
    world.engines["a"].sick_since = world.clock.now - 400
    world.exporter.during_proof = lambda e: world.alertmanager.silenced.add(e.name)
    await world.looks(600)
    assert world.docker.restarts == []
    assert ("skip", "silenced") in await world.decisions("a")


async def test_one_of_two_alertmanagers_away_means_wait(make: Make) -> None:
    world = make()
    world.engines["a"].sick_since = world.clock.now - 400
    world.alertmanager.reachable = False
    await world.remediator.accept(_delivery(world))  # type: ignore[union-attr]
    await world.look()
    assert world.docker.restarts == []
    assert ("defer", "alertmanager_unreachable") in await world.decisions("a")
    world.alertmanager.reachable = True
    await world.look()
    assert len(world.docker.restarts) == 1


async def test_wrong_container_is_latched_until_a_person_looks(make: Make) -> None:
    world = make()
    engine = world.engines["a"]
    engine.sick_since, engine.exporter_sees = world.clock.now - 400, False
    await world.looks(3600)
    assert await world.results() == ["wrong_container"]
    assert world.inbox.events() == ["acted", "wrong_container"]
    view = world.remediator.targets()[0]  # type: ignore[union-attr]
    assert view.wrong_container
    assert view.latched


async def test_unkillable_outcome_latches(make: Make) -> None:
    world = make()
    world.engines["a"].sick_since = world.clock.now - 400
    world.engines["a"].script.append("no_effect")
    await world.looks(86000, every=600)
    assert len(world.docker.restarts) == 1
    assert await world.results() == ["unkillable"]
    assert world.inbox.events().count("latched") == 1


async def test_d_state_is_latched_before_any_call(make: Make) -> None:
    world = make()
    world.engines["a"].sick_since = world.clock.now - 400
    world.docker.processes = (Process(7, 1, "D", "nvidia_poll", 9.0, "EngineCore"),)
    await world.looks(600)
    assert world.docker.restarts == []
    assert ("latch", "unkillable") in await world.decisions("a")
    assert world.inbox.events() == ["latched"]


async def test_half_restart_gets_one_start(make: Make) -> None:
    world = make()
    world.engines["a"].sick_since = world.clock.now - 400
    world.engines["a"].script.append("half")
    await world.looks(600)
    assert len(world.docker.restarts) == len(world.docker.starts) == 1
    assert await world.results() == ["verified"]


async def test_half_restart_that_cannot_be_started_latches_and_pages(make: Make) -> None:
    world = make()
    world.engines["a"].sick_since = world.clock.now - 400
    world.engines["a"].script.append("half_forever")
    await world.looks(3600)
    assert len(world.docker.starts) == 1
    assert await world.results() == ["start_failed"]
    assert world.inbox.events() == ["latched"]


async def test_a_late_answer_is_not_a_failure_and_makes_no_second_call(make: Make) -> None:
    world = make()
    world.engines["a"].sick_since = world.clock.now - 400
    world.engines["a"].script.append("late")
    await world.looks(600)
    assert len(world.docker.restarts) == 1
    assert await world.results() == ["verified"]


async def test_a_call_that_never_reached_docker_counts_but_does_not_latch(make: Make) -> None:
    world = make()
    world.engines["a"].sick_since = world.clock.now - 400
    world.engines["a"].script.append("unavailable")
    await world.looks(3600)
    assert await world.results() == ["abandoned", "verified"]


async def test_two_foreign_restarts_while_stuck_mean_another_watchdog(make: Make) -> None:
    world = make(rules=Rules(startup_grace=0.0, cooldown=3600.0, cooldown_max=7200.0))
    engine = world.engines["a"]
    engine.cured_by_restart = False
    assert world.remediator is not None
    await world.remediator.pause("a", seconds=1000, reason="", by="ann")
    await world.look()
    for _ in range(2):
        engine.sick_since = world.clock.now
        await world.looks(400, every=20)
        engine.stop_events(world.clock.now)
        engine.started(world.clock.now + 1)
        await world.looks(60, every=20)
    await world.looks(6 * 3600, every=300)
    assert world.docker.restarts == []
    assert ("skip", "foreign_owner") in await world.decisions("a")
    assert world.inbox.events() == ["foreign_owner"]
    assert world.remediator.counters().foreign_starts["a"] == 2  # type: ignore[union-attr]


async def test_a_watchdog_faster_than_our_looks_is_known_by_the_exporters_history(make: Make) -> None:
    world = make(rules=Rules(startup_grace=0.0, cooldown=3600.0, cooldown_max=7200.0))
    engine, target = world.engines["a"], world.exporter.target
    history: list[tuple[float, str]] = []

    async def with_history(name: str) -> Any:
        found = await target(name)
        return replace(found, value=replace(found.get(), history=tuple(history)))

    world.exporter.target = with_history  # type: ignore[method-assign]
    await world.look()
    for _ in range(2):
        # Stalled and restarted within one of our intervals: no look of ours ever saw it ill.
        history.append((world.clock.now + 5, "stalled"))
        engine.stop_events(world.clock.now + 10)
        engine.started(world.clock.now + 11)
        await world.look()
        await world.look()
    engine.sick_since = world.clock.now - 400
    await world.look()
    assert ("skip", "foreign_owner") in [*await world.decisions("a"), *await _after(world, 4000)]
    assert world.docker.restarts == []


async def test_one_human_restart_only_starts_the_cooldown(make: Make) -> None:
    world = make(rules=Rules(startup_grace=0.0))
    engine = world.engines["a"]
    engine.sick_since, engine.cured_by_restart, engine.relapses_after = world.clock.now, False, 100.0
    await world.looks(240, every=20)
    engine.stop_events(world.clock.now)
    engine.started(world.clock.now + 1)
    began = world.clock.now
    engine.cured_by_restart = True
    await world.looks(900)
    assert len(world.docker.restarts) == 1
    assert world.docker.restarts[0][0] - began >= 600


async def test_starts_by_others_use_up_the_budget(make: Make) -> None:
    world = make(rules=Rules(startup_grace=0.0, cooldown=60.0, budget=Budget(2, 6 * 3600.0)))
    engine = world.engines["a"]
    await world.look()
    for _ in range(2):
        engine.stop_events(world.clock.now)
        engine.started(world.clock.now + 1)
        await world.looks(120)
    engine.sick_since = world.clock.now - 400
    await world.looks(600)
    assert world.docker.restarts == []
    assert ("latch", "budget") in await world.decisions("a")


async def test_a_new_container_is_a_deployment_and_costs_no_budget(make: Make) -> None:
    world = make(rules=Rules(startup_grace=0.0, cooldown=60.0, budget=Budget(1, 6 * 3600.0)))
    engine = world.engines["a"]
    await world.look()
    engine.id = "fe" * 32
    engine.box = replace(engine.box, id=engine.id, started_at=world.clock.now, started_at_raw="new")
    await world.looks(120)
    engine.sick_since = world.clock.now - 60
    await world.looks(600)
    assert len(world.docker.restarts) == 1


async def test_two_stuck_at_once_are_restarted_one_after_the_other(make: Make) -> None:
    world = make("a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
    world.engines["a"].sick_since = world.clock.now - 400
    world.engines["b"].sick_since = world.clock.now - 400
    assert world.remediator is not None
    await world.remediator.worker.tick()
    assert sorted(world.remediator.worker.in_flight) in (["a"], ["b"])
    await world.remediator.worker.drain()
    await world.looks(120)
    assert sorted(name for _, name in world.docker.restarts) == ["a", "b"]


async def test_all_at_once_is_a_shared_cause(make: Make) -> None:
    world = make("a", "b", fleet=FleetRules(storm_cooldown=600.0))
    for engine in world.engines.values():
        engine.sick_since = world.clock.now - 400
    await world.looks(600)
    assert world.docker.restarts == []
    assert world.remediator.overview().breaker_open  # type: ignore[union-attr]
    world.engines["b"].sick_since = None
    closed = world.clock.now
    await world.looks(900)
    assert [name for _, name in world.docker.restarts] == ["a"]
    assert world.docker.restarts[0][0] - closed >= 600 - 30


async def test_pause_one_and_all_and_both_end(make: Make) -> None:
    world = make()
    world.engines["a"].sick_since = world.clock.now - 400
    until = await world.remediator.pause("a", seconds=600, reason="upgrade", by="ann")  # type: ignore[union-attr]
    await world.looks(500)
    assert world.docker.restarts == []
    assert ("skip", "paused") in await world.decisions("a")
    await world.looks(300)
    assert world.docker.restarts[0][0] >= until


async def test_the_pause_file_pauses_everything_for_its_time(make: Make, tmp_path: Path) -> None:
    world = make(pause_file=str(tmp_path / "pause"))
    (tmp_path / "pause").write_text("10m\n")
    os.utime(tmp_path / "pause", (START, START))
    world.engines["a"].sick_since = world.clock.now - 400
    await world.looks(560)
    assert world.docker.restarts == []
    await world.looks(90)
    assert len(world.docker.restarts) == 1


async def test_a_clock_set_back_is_not_believed(make: Make) -> None:
    world = make()
    world.engines["a"].sick_since = world.clock.now - 400
    await world.look()
    assert len(world.docker.restarts) == 1
    world.clock.jump(-3600)
    world.engines["a"].sick_since = world.clock.now - 400
    await world.looks(600)
    assert len(world.docker.restarts) == 1
    assert ("defer", "clock_backwards") in await world.decisions("a")


async def test_a_clock_set_forward_does_not_end_the_cooldown(make: Make) -> None:
    world = make()
    engine = world.engines["a"]
    engine.cured_by_restart = False
    engine.sick_since = world.clock.now - 400
    await world.look()
    assert len(world.docker.restarts) == 1
    world.clock.jump(7 * 3600)
    await world.look(1)
    await world.look(1)
    assert len(world.docker.restarts) == 1
    assert ("defer", "clock_forwards") in await world.decisions("a")


async def test_observe_touches_nothing_and_simulates_the_limits(make: Make) -> None:
    world = make(mode=Mode.OBSERVE)
    world.engines["a"].sick_since = world.clock.now
    await world.looks(5 * 3600, every=120)
    assert world.docker.restarts == []
    decisions = await world.decisions("a")
    assert decisions.count(("would_act", "proven")) == 3
    assert ("latch", "budget") in decisions
    assert ("skip", "latched") in decisions
    assert world.inbox.notices == []
    outcomes = [d.outcome for d in await world.remediator.decisions(target="a") if d.decision == "would_act"]  # type: ignore[union-attr]
    assert outcomes == ["still stuck 20m later"] * 3


async def test_observe_says_when_a_restart_would_have_been_needless(make: Make) -> None:
    world = make(mode=Mode.OBSERVE)
    world.engines["a"].sick_since = world.clock.now - 400
    await world.look()
    world.engines["a"].sick_since = None
    await world.looks(300)
    (found,) = [d for d in await world.remediator.decisions(target="a") if d.decision == "would_act"]  # type: ignore[union-attr]
    assert "needless" in found.outcome


async def test_drill_asks_everything_and_touches_nothing(make: Make) -> None:
    world = make()
    world.engines["a"].sick_since = world.clock.now - 400
    await world.look(0)
    assert world.remediator is not None
    shown = await world.remediator.drill("b")
    assert {g.name: g.passed for g in shown.gates}["proof"] is False
    assert {g.name: g.passed for g in shown.gates}["alertmanager"] is False
    assert "logs box-b" in shown.evidence["captured"]
    assert [name for _, name in world.docker.restarts] == ["a"]


async def test_explain_asks_nothing_costly(make: Make) -> None:
    world = make()
    await world.look()
    shown = await world.remediator.explain("a")  # type: ignore[union-attr]
    assert shown.reason == "state_busy"
    assert world.exporter.proofs == {}
    world.engines["a"].sick_since = world.clock.now - 400
    shown = await world.remediator.explain("a")  # type: ignore[union-attr]
    assert shown.decision == "act"
    assert shown.reason == "needs_processes"
    assert world.exporter.proofs == {}


async def test_a_notice_is_delivered_later_if_nobody_answers_now(make: Make) -> None:
    world = make()
    world.inbox.reachable = False
    world.engines["a"].sick_since = world.clock.now - 400
    await world.look()
    assert world.inbox.notices == []
    assert world.remediator.overview().notify_failures >= 1  # type: ignore[union-attr]
    world.inbox.reachable = True
    await world.look()
    assert world.inbox.events() == ["acted", "verified"]


async def test_one_machine_without_an_alertmanager_polls_the_exporter(make: Make) -> None:
    world = make(trigger="exporter")
    world.engines["a"].sick_since = world.clock.now
    await world.looks(600)
    assert [name for _, name in world.docker.restarts] == ["a"]
    shown = await world.remediator.explain("a")  # type: ignore[union-attr]
    assert "no silence can be honoured" in {g.name: g.text for g in shown.gates}["alertmanager"]
    assert world.remediator.overview().trigger == "exporter"  # type: ignore[union-attr]


async def test_the_audit_log_has_a_line_for_all_that_was_decided_and_done(make: Make, tmp_path: Path) -> None:
    world = make(audit_log=str(tmp_path / "audit.jsonl"))
    world.engines["a"].sick_since = world.clock.now - 400
    await world.look()
    await world.remediator.pause("a", seconds=60, reason="upgrade", by="ann")  # type: ignore[union-attr]
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["intent", "acting", "closed", "pause"]
    assert lines[2]["result"] == "verified"
    assert lines[3]["by"] == "ann"


async def test_an_audit_log_that_cannot_be_written_stops_nothing(make: Make, tmp_path: Path) -> None:
    world = make(audit_log=str(tmp_path / "no" / "such" / "folder"))
    world.engines["a"].sick_since = world.clock.now - 400
    await world.look()
    assert await world.results() == ["verified"]


async def test_an_alert_for_a_stranger_is_counted_without_its_name(make: Make) -> None:
    world = make()
    assert world.remediator is not None
    stranger = ReceivedAlert("firing", {"target": "../x", "remediate": "restart"}, {}, "fp", world.clock.now, None)
    await world.remediator.accept(Delivery((stranger,), 0, "g", "r", "10.0.0.9"))
    await world.look()
    assert world.remediator.counters().decisions == {("", "skip", "unknown_target"): 1}
    assert await world.decisions() == []


async def test_webhooks_alone_are_enough_in_observe(make: Make) -> None:
    """Without Alertmanagers to ask, what was delivered counts, for its time."""
    world = make(trigger="webhook", mode=Mode.OBSERVE)
    world.engines["a"].sick_since = world.clock.now - 400
    await world.remediator.accept(_delivery(world))  # type: ignore[union-attr]
    await world.look()
    assert ("would_act", "proven") in await world.decisions("a")


async def test_what_was_delivered_before_a_restart_is_read_after_it(make: Make) -> None:
    world = make(trigger="webhook", mode=Mode.OBSERVE)
    world.engines["a"].sick_since = world.clock.now - 400
    await world.remediator.accept(_delivery(world))  # type: ignore[union-attr]
    await world.crash()
    world.open()
    await world.look()
    assert ("would_act", "proven") in await world.decisions("a")


async def test_old_deliveries_are_not_replayed(make: Make) -> None:
    world = make(trigger="webhook", mode=Mode.OBSERVE)
    world.engines["a"].sick_since = world.clock.now - 400
    await world.remediator.accept(_delivery(world))  # type: ignore[union-attr]
    await world.crash()
    world.clock.advance(301)
    world.open()
    await world.look()
    assert await world.decisions("a") == [("skip", "alert_stale")]


async def test_an_attempt_in_flight_at_a_crash_is_taken_up_at_its_phase(make: Make) -> None:
    world = make()
    world.engines["a"].sick_since = world.clock.now - 400
    assert world.remediator is not None
    waits = asyncio.Event()

    async def for_ever(seconds: float) -> None:
        waits.set()
        await asyncio.Event().wait()

    passes, world.clock.sleep = world.clock.sleep, for_ever  # type: ignore[method-assign]
    await world.remediator.worker.tick()
    await waits.wait()
    (view, _) = world.remediator.targets()
    assert (view.phase, view.in_progress, view.next_gate) == ("verifying", True, "in_flight")
    shown = await world.remediator.explain("a")
    assert {g.name: g.passed for g in shown.gates}["in_flight"] is False
    await world.crash()
    world.clock.sleep = passes  # type: ignore[method-assign]
    world.open()
    await world.looks(60)
    assert await world.results() == ["verified"]
    assert len(world.docker.restarts) == 1


async def test_a_broken_journal_restarts_nothing_and_answers_503(make: Make) -> None:
    world = make()
    world.engines["a"].sick_since = world.clock.now - 400

    def torn(db: sqlite3.Connection) -> None:
        error = sqlite3.DatabaseError("database disk image is malformed")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error

    with pytest.raises(StoreError, match="moved away"):
        await world.journal.run(torn)
    await world.looks(120)
    assert world.docker.restarts == []
    assert world.remediator is not None
    with pytest.raises(StoreError):
        await world.remediator.accept(_delivery(world))
    overview = world.remediator.overview()
    assert (overview.mode, overview.configured_mode, overview.journal_writable) == ("observe", "act", False)
    assert world.remediator.ready()[0] is False
    assert {v.next_gate for v in world.remediator.targets()} == {"journal"}


async def _after(world: World, seconds: float) -> list[tuple[str, str]]:
    await world.looks(seconds, every=300)
    return await world.decisions("a")


def _delivery(world: World) -> Any:
    alert = ReceivedAlert("firing", dict(world.alertmanager.alert("a").labels), {}, "fp-a", world.clock.now, None)
    return Delivery((alert,), 0, "group", "remediator", "127.0.0.1")


async def test_an_attempt_whose_task_died_is_taken_up_at_the_next_look(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make()
    world.engines["a"].sick_since = world.clock.now - 400

    async def dies(*_: Any) -> Any:
        raise RuntimeError("a defect in what captures")

    with monkeypatch.context() as broken:
        broken.setattr("llm_remediator.remedy.capture", dies)
        await world.look()
    assert world.remediator is not None
    assert world.remediator.healthy()[0] is False
    await world.looks(60)
    assert (await world.results())[0] == "abandoned"
    assert world.docker.restarts == []
    await world.looks(700)
    assert await world.results() == ["abandoned", "verified"]


async def test_a_notice_waits_for_an_endpoint_that_is_away_for_hours_and_is_given_up_after_a_day(make: Make) -> None:
    world = make()
    world.inbox.reachable = False
    world.engines["a"].sick_since = world.clock.now - 400
    await world.looks(6 * 3600, every=600)
    assert world.inbox.notices == []
    world.inbox.reachable = True
    await world.look()
    assert world.inbox.events() == ["acted", "verified"]
    world.inbox.reachable = False
    world.engines["a"].sick_since = world.clock.now - 400
    await world.looks(26 * 3600, every=1800)
    world.inbox.reachable = True
    await world.look()
    assert world.inbox.events() == ["acted", "verified"], "what is a day old wakes nobody any more"


async def test_an_endpoint_that_is_away_is_asked_ever_more_seldom(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make()
    assert world.remediator is not None
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        world.inbox.reachable = len(pauses) == 7
        await asyncio.sleep(0)

    monkeypatch.setattr(world.clock, "sleep", sleep)
    world.inbox.reachable = False
    notice = Notice("latched", "a", "t", world.clock.now, "act")
    await world.journal.run(lambda db: put_notice(db, notice))
    courier = asyncio.create_task(world.remediator.courier.run())
    async with asyncio.timeout(20):
        while not world.inbox.notices:
            await asyncio.sleep(0.01)
    courier.cancel()
    assert pauses == [15.0, 30.0, 60.0, 120.0, 240.0, 300.0, 300.0]
