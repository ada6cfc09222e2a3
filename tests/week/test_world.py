"""The simulated engine, its clients and its page, in small scenes whose outcome can be worked out by hand."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from benchmarks.week.engine import FOREVER, Engine, Request
from benchmarks.week.page import evidence, facts, render
from benchmarks.week.schedule import DAY, HOUR, Arrival, Event, Hang, Happening, Schedule, draw
from benchmarks.week.servers import SERVERS, Server
from benchmarks.week.world import World

from llm_exporter.engines import Known, Look, Page, by_kind
from llm_exporter.exposition import read
from llm_exporter.judge import LaneEvidence

SMALL = Server("small", "0.32.0", slots=2, prefill_rate=1000.0, decode_rate=10.0, load_seconds=(60.0, 60.0))


def request(prompt: int = 100, tokens: int = 11) -> Request:
    return Request(prompt, tokens, FOREVER, 0.0)


def scene(*happenings: Happening, arrivals: tuple[Arrival, ...] = (), server: Server = SMALL) -> Schedule:
    return Schedule(server, 6 * HOUR, arrivals, happenings, (), ())


def test_a_request_is_prefilled_then_decoded_at_its_rate() -> None:
    engine, asked = Engine(SMALL, 0.0), request(prompt=500, tokens=11)
    engine.add(asked)
    engine.advance(0.49)
    assert (engine.steps, engine.prompt_tokens, engine.generation_tokens) == (0, 0, 0)
    engine.advance(0.51)
    assert (engine.steps, engine.prompt_tokens, engine.generation_tokens) == (1, 500, 1)
    engine.advance(2.0)
    assert asked.ended == "finished"
    assert asked.ended_at == pytest.approx(1.5)
    assert (engine.generation_tokens, engine.finished, engine.gauges.running) == (11, 1, 0)


def test_only_the_kv_gauge_moves_during_a_long_prefill_and_on_old_versions_nothing() -> None:
    for server, moves in ((SMALL, True), (replace(SMALL, stale_gauges=True), False)):
        engine = Engine(server, 0.0)
        engine.add(request(prompt=100_000))
        seen = []
        for second in (20, 40, 60, 80):
            engine.advance(second)
            seen.append(engine.gauges.kv)
            assert (engine.steps, engine.prompt_tokens, engine.generation_tokens) == (0, 0, 0)
        assert (len(set(seen)) == 4) is moves
        assert engine.gauges.running == moves


def test_waiting_requests_are_admitted_in_order_when_a_slot_is_free() -> None:
    engine, asked = Engine(SMALL, 0.0), [request(tokens=21), request(tokens=41), request(tokens=5)]
    for one in asked:
        engine.add(one)
    engine.advance(1.0)
    assert (engine.gauges.running, engine.gauges.waiting) == (2, 1)
    engine.advance(30.0)
    assert [one.ended for one in asked] == ["finished"] * 3
    assert asked[2].ended_at is not None
    assert asked[0].ended_at is not None
    assert asked[0].ended_at < asked[2].ended_at


@pytest.mark.parametrize(("stale", "left"), [(False, 0), (True, 1)])
def test_an_abort_refreshes_the_gauges_only_on_new_versions(stale: bool, left: int) -> None:
    engine, asked = Engine(replace(SMALL, stale_gauges=stale), 0.0), request(tokens=500)
    engine.add(asked)
    engine.advance(5.0)
    engine.abort(asked)
    engine.advance(50.0)
    assert engine.gauges.running == left
    assert engine.finished == 0


def test_a_frozen_engine_changes_nothing_until_it_thaws() -> None:
    engine = Engine(SMALL, 0.0)
    engine.add(request(tokens=1000))
    engine.advance(5.0)
    before = (engine.steps, engine.generation_tokens, engine.gauges)
    engine.frozen_until = 30.0
    engine.advance(29.0)
    assert (engine.steps, engine.generation_tokens, engine.gauges) == before
    engine.advance(40.0)
    assert engine.generation_tokens > before[1]


def comparable(lane: LaneEvidence) -> dict[str, object]:
    """Without ``kv_shown``: with one KV gauge per lane it says what ``kv`` says."""
    return {name: value for name, value in asdict(lane).items() if name != "kv_shown"}


def test_the_adapter_reads_from_the_page_the_very_evidence_that_is_judged() -> None:
    adapter = by_kind("vllm")
    assert adapter is not None
    for server in SERVERS:
        world, compared = World(draw(server, seed=3, days=1.0), 3), []

        def compare(world: World = world, compared: list[bool] = compared) -> None:
            world.at(world.now + 900.0, compare)
            if world.refused:
                return
            known = Known(version=world.server.version, model="m")
            samples = read(render(world), adapter.series)
            look = Look(world.now, world.now, Page(200, render(world)), Page(200))
            (lane,) = adapter.read(samples, look, known).lanes
            assert comparable(lane) == comparable(evidence(world))
            assert adapter.facts(samples, known) == facts(world.server)
            compared.append(world.asleep)

        world.at(600.0, compare)
        world.run()
        assert len(compared) > 60


def test_every_rule_meets_the_same_week() -> None:
    first, second = draw(SERVERS[0], seed=5), draw(SERVERS[0], seed=5)
    assert first == second
    assert draw(SERVERS[0], seed=6) != first
    assert {h.what for h in first.happenings if isinstance(h.what, Hang)} == set(Hang)


def test_downtime_counts_hang_and_load_but_no_redeployment() -> None:
    redeployed = World(scene(Happening(HOUR, Event.REDEPLOY)), 1).run()
    assert redeployed.downtime == 0
    busy = (Arrival(HOUR - 5, 100, 5000, HOUR),)
    hung = World(scene(Happening(HOUR, Hang.BUSY_STEP), arrivals=busy), 1).run()
    assert [hang.missed for hang in hung.hangs] == [True]
    assert hung.downtime == pytest.approx(60 * 60 + 10 + 60)


def test_a_hang_waits_for_its_condition() -> None:
    world = World(scene(Happening(HOUR, Hang.FIRST_STEP), arrivals=(Arrival(2 * HOUR, 10, 10, HOUR),)), 1)
    (hang,) = world.run().hangs
    assert (hang.kind, hang.began) == (Hang.FIRST_STEP, 2 * HOUR)
    assert hang.began < DAY
