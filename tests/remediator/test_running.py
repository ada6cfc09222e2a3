"""The running remediator: what people may ask of it, its health, its loop and its clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llm_remediator.clock import SystemClock
from llm_remediator.clockwatch import ClockWatch
from llm_remediator.outcome import Outcome, Status
from llm_remediator.rules import Mode
from llm_remediator.service import Delivery, NotPossibleError, ReceivedAlert, UnknownTargetError
from remediator.world import World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path, ("a", "b"), interval=0.05)
    made.open()
    yield made
    await made.crash()


async def test_people_ask_of_targets_that_there_are(world: World) -> None:
    assert world.remediator is not None
    for asked in (world.remediator.explain("x"), world.remediator.drill("x"), world.remediator.rearm("x", by="ann")):
        with pytest.raises(UnknownTargetError):
            await asked
    with pytest.raises(UnknownTargetError):
        await world.remediator.pause("x", seconds=60, reason="", by="ann")
    with pytest.raises(UnknownTargetError):
        await world.remediator.resume("x", by="ann")


async def test_what_makes_no_sense_is_refused(world: World) -> None:
    assert world.remediator is not None
    await world.look()
    with pytest.raises(NotPossibleError, match="a is not latched"):
        await world.remediator.rearm("a", by="ann")
    with pytest.raises(NotPossibleError, match="a is not paused"):
        await world.remediator.resume("a", by="ann")
    with pytest.raises(NotPossibleError, match="the remediator is not paused"):
        await world.remediator.resume(None, by="ann")


async def test_pauses_are_shown_and_end_on_request(world: World) -> None:
    assert world.remediator is not None
    await world.remediator.pause(None, seconds=600, reason="upgrade", by="ann")
    await world.look()
    assert world.remediator.overview().pause_reason == "upgrade"
    assert {v.paused_until for v in world.remediator.targets()} == {world.remediator.overview().paused_until}
    await world.remediator.resume(None, by="ann")
    await world.look()
    assert world.remediator.overview().paused_until is None


async def test_before_the_first_look_it_is_not_ready_and_says_so(world: World) -> None:
    assert world.remediator is not None
    assert world.remediator.ready() == (False, "the first look at all targets is not finished")
    assert {v.sentence for v in world.remediator.targets()} == {"not looked at yet"}
    await world.look()
    assert world.remediator.ready() == (True, "ok")
    assert world.remediator.healthy() == (True, "ok")


async def test_a_worker_that_hangs_or_died_turns_it_red(world: World) -> None:
    assert world.remediator is not None
    await world.look()
    world.clock.advance(301)
    assert world.remediator.healthy() == (False, "the worker has not finished a look for 301 s")

    async def dies() -> None:
        raise RuntimeError

    world.remediator.guard.spawn("courier", dies)
    await asyncio.sleep(0.05)
    assert world.remediator.healthy() == (False, "background tasks died: courier")
    assert world.remediator.overview().task_deaths == {"courier": 1}


async def test_the_loop_runs_by_itself_and_a_webhook_wakes_it(world: World) -> None:
    assert world.remediator is not None
    world.remediator.worker._config = world.config.__class__(**{**_fields(world), "interval": 3600.0})
    world.engines["a"].sick_since = world.clock.now - 200
    world.remediator.start()
    await _until(lambda: world.remediator is not None and world.remediator.ready()[0])
    world.engines["a"].sick_since = world.clock.now - 400
    labels = {"target": "a", "remediate": "restart", "alertname": "LLMEngineStuck"}
    await world.remediator.accept(
        Delivery((ReceivedAlert("firing", labels, {}, "fp", None, None),), 0, "g", "r", "127.0.0.1")
    )
    await _until(lambda: world.docker.restarts)
    await _until(lambda: "verified" in world.inbox.events())


async def test_docker_and_alertmanagers_are_told_apart_in_the_overview(world: World) -> None:
    assert world.remediator is not None
    world.alertmanager.reachable = False
    world.exporter.reachable = False
    await world.look()
    seen = world.remediator.overview()
    assert (seen.alertmanager_up, seen.exporter_up, seen.docker_up) == ({"http://am": False}, False, {"local": True})
    assert {v.state for v in world.remediator.targets()} == {"unknown"}
    assert {v.next_gate for v in world.remediator.targets()} == {"state"}


async def test_a_watchdog_on_the_same_host_is_warned_about(world: World) -> None:
    async def autoheal() -> Outcome[tuple[str, ...]]:
        return Outcome(Status.OK, ("heal (willfarrell/autoheal)",))

    world.docker.watchdogs = autoheal  # type: ignore[method-assign]
    await world.look()
    assert world.remediator is not None
    (warning,) = world.remediator.overview().warnings
    assert warning.startswith("heal (willfarrell/autoheal) on local restarts containers too")


async def test_views_say_what_would_happen_next(world: World) -> None:
    assert world.remediator is not None
    world.engines["a"].sick_since = world.clock.now - 400
    world.alertmanager.silenced.add("a")
    await world.look()
    view, other = world.remediator.targets()
    assert (view.state, view.alert, view.next_gate) == ("stuck", "firing", "alert")
    assert "silenced" in view.next_action
    assert (other.alert, other.next_gate) == ("none", "state")
    assert (view.budget_remaining, view.budget_total) == (3, 3)
    assert "box-a" in view.container


async def test_observe_is_shown_as_what_it_is(tmp_path: Path) -> None:
    world = World(tmp_path, ("a",), mode=Mode.OBSERVE)
    remediator = world.open()
    world.engines["a"].sick_since = world.clock.now - 400
    await world.look()
    await world.look()
    assert remediator.overview().mode == "observe"
    assert remediator.targets()[0].phase == "backoff"
    assert remediator.targets()[0].last_restart is None
    await world.crash()


def test_the_clock_watch_tells_a_jump_from_the_passing_of_time() -> None:
    watch = ClockWatch()
    assert watch.distrust_until(1000.0, 10.0) == 0.0
    assert watch.distrust_until(5000.0, 4010.0) == 0.0
    assert watch.distrust_until(8600.0, 4010.0) == 8600.0 + 3600.0
    assert watch.distrust_until(8601.0, 4011.0) == 8600.0 + 3600.0
    assert watch.distrust_until(5001.0, 4011.0) == 8600.0 + 3600.0
    far = ClockWatch()
    far.distrust_until(0.0, 0.0)
    assert far.distrust_until(90 * 86400.0, 1.0) == 90 * 86400.0 + 6 * 3600.0


async def test_the_real_clock_goes_forward() -> None:
    clock = SystemClock()
    wall, mono = clock.wall(), clock.monotonic()
    await clock.sleep(0.01)
    assert clock.monotonic() > mono
    assert clock.wall() > wall - 1


def _fields(world: World) -> dict[str, object]:
    from dataclasses import fields

    return {f.name: getattr(world.config, f.name) for f in fields(world.config)}


async def _until(look: object) -> None:
    for _ in range(500):
        if look():  # type: ignore[operator]
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not within five seconds")


def test_the_exporters_history_is_taken_as_far_as_it_can_be_read() -> None:
    from llm_remediator.exporter_client import read_report

    odd = [
        {"t": 9, "state": "stuck"},
        {"t": None, "state": "busy"},
        {"t": 5.0, "state": "stalled"},
        7,
        {"t": 6, "state": "x"},
    ]
    assert read_report({"name": "a", "state": "busy", "history": odd}).history == ((5.0, "stalled"), (9.0, "stuck"))
    assert read_report({"name": "a", "state": "busy", "history": "none"}).history == ()
