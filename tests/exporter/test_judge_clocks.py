"""What counts as movement, when each clock begins, and where two limits meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from exporter.watched import FACTS, PATIENCE, Watched, silent
from llm_exporter.judge import (
    Facts,
    LaneEvidence,
    State,
)


@pytest.mark.parametrize(("gap", "state"), [(30.0, State.STALLED), (31.0, State.BUSY)])
def test_the_flat_clock_goes_on_over_a_gap_of_thirty_seconds_and_no_more(gap: float, state: State) -> None:
    target = Watched()
    lane = LaneEvidence("0", {"steps": 2.0}, 1.0, 0.0, steps=2.0)
    target.see(lane)
    target.see(lane)
    verdict = target.see(lane, after=gap)
    assert (verdict.state, verdict.progress) == (state, 0 if state is State.STALLED else None)


def test_a_bound_shorter_than_two_pauses_is_stalled_first() -> None:
    target = Watched(replace(PATIENCE, interval=15, stuck_after=20, confirm=False))
    lane = LaneEvidence("0", {"steps": 2.0}, 1.0, 0.0, steps=2.0)
    states = [target.see(lane).state for _ in range(8)]
    assert states == [*[State.BUSY] * 7, State.STUCK]


def test_a_negative_gauge_hides_no_work() -> None:
    lane = LaneEvidence("0", {"steps": 2.0}, 1.0, -1.0)
    assert Watched().see(lane).held == 1


def test_progress_is_not_known_at_the_first_look_at_work_and_is_one_until_it_is_stalled() -> None:
    target = Watched()
    assert target.look(2, running=1).progress is None
    assert [target.look(2, running=1).progress for _ in range(5)] == [1, 1, 1, 1, 0]
    assert target.look(2).progress == 1
    assert target.look(2, running=1).progress is None
    assert target.look(2).progress == 1
    assert target.look(3, running=1).progress == 1


def bound(resolution: float, slowest: bool) -> float:
    facts = replace(FACTS, steps_are_decodes=True, stuck_after=60.0)
    target = Watched(replace(PATIENCE, stuck_after=None), facts)
    steps = 0.0
    for n in range(4):
        steps += resolution if slowest and n == 3 else 0.0
        lane = LaneEvidence("0", {"steps": 7.0 + steps}, 1.0, 0.0, steps=7.0 + steps, resolution=resolution)
        verdict = target.see(lane)
    (said,) = verdict.lanes
    assert said.bound is not None
    return said.bound.seconds


def test_the_printed_resolution_and_the_slowest_decode_stretch_the_bound() -> None:
    assert bound(1.0, slowest=False) == 60
    assert bound(10.0, slowest=False) == 600
    assert bound(1.0, slowest=True) == 60 + 1 * 15 * 2
    assert bound(10.0, slowest=True) == 60 + 10 * 1.5 * 2


def test_the_slowest_decode_is_remembered_through_faster_ones_and_a_gap() -> None:
    target = Watched(facts=replace(FACTS, steps_are_decodes=True))

    def bound_after(steps: float, after: float = 5.0) -> float:
        lane = LaneEvidence("0", {"steps": steps}, 1.0, 0.0, steps=steps)
        (said,) = target.see(lane, after=after).lanes
        assert said.bound is not None
        return said.bound.seconds

    seen = [bound_after(7), bound_after(7), bound_after(8), bound_after(18), bound_after(18, after=100.0), bound_after(19)]
    assert seen == [60, 60, 80, 80, 80, 80]


@pytest.mark.parametrize(("age", "tokens", "state"), [
    (None, 0.0, State.STALLED), (None, 5.0, State.STUCK), (None, None, State.STUCK),
    (0.0, 5.0, State.STALLED), (500.0, 5.0, State.STUCK), (599.0, 0.0, State.STALLED),
])  # fmt: skip
def test_the_start_grace_is_from_a_known_start_or_from_first_sight_while_no_token_was_counted(
    age: float | None, tokens: float | None, state: State
) -> None:
    target = Watched(replace(PATIENCE, start_grace=200, confirm=False))
    steps = 0.0 if tokens == 0.0 else 7.0
    lane = LaneEvidence("0", {"steps": steps}, 1.0, 0.0, generation_tokens=tokens, steps=steps)
    for n in range(20):
        verdict = target.see(lane, **({} if age is None else {"age": age + 5 * n}))
    assert verdict.state is state, verdict.sentence


def test_the_first_token_ends_the_grace_of_an_unknown_start() -> None:
    def after(first: float, then: float, steps: float = 0.0) -> State:
        target = Watched(replace(PATIENCE, start_grace=200, confirm=False))
        for n in range(20):
            tokens = then if n else first
            verdict = target.see(LaneEvidence("0", {"steps": steps}, 1.0, 0.0, generation_tokens=tokens, steps=steps))
        return verdict.state

    assert after(first=0.0, then=5.0) is State.STUCK
    assert after(first=0.0, then=0.0) is State.STALLED
    assert after(first=0.0, then=0.0, steps=7.0) is State.STALLED, "steps of a first prompt are no token"


@pytest.mark.parametrize(
    ("sighted", "prefill_blind", "seconds", "why"),
    [
        (True, None, 60, "stuck_after"),
        (False, None, 900, "stuck_after_blind, it cannot be seen"),
        (True, True, 900, "stuck_after_blind, prefill_blind is set"),
        (False, False, 60, "stuck_after"),
    ],
)
def test_the_blind_bound_is_for_what_is_blind_or_called_so(
    sighted: bool, prefill_blind: bool | None, seconds: float, why: str
) -> None:
    facts = replace(FACTS, sighted=sighted, sight_why="it cannot be seen")
    (lane,) = Watched(replace(PATIENCE, prefill_blind=prefill_blind), facts).look(2, running=1).lanes
    assert lane.bound is not None
    assert (lane.bound.seconds, lane.bound.why) == (seconds, why)


@pytest.mark.parametrize(
    ("interval", "stalled_after", "stuck_after", "stalled"),
    [(5, 30, 300, 30), (5, 30, 40, 20), (15, 20, 300, 30), (60, 30, 300, 120), (60, 30, 120, 120), (5, 200, 300, 150)],
)
def test_stalled_is_never_less_than_two_pauses_else_never_more_than_half_the_bound(
    interval: float, stalled_after: float, stuck_after: float, stalled: float
) -> None:
    patience = replace(PATIENCE, interval=interval, stalled_after=stalled_after, stuck_after=stuck_after)
    (lane,) = Watched(patience).look(2, running=1).lanes
    assert lane.bound is not None
    assert lane.bound.stalled_after == stalled


def test_without_token_counters_the_first_step_ends_an_unknown_start() -> None:
    target = Watched(replace(PATIENCE, start_grace=400, confirm=False))
    target.see(LaneEvidence("0", {"steps": 0.0}, 0.0, 0.0, steps=0.0))
    for _ in range(20):
        verdict = target.look(7, running=1)
    assert verdict.state is State.STUCK, verdict.sentence


def test_the_evidence_is_every_series_that_the_page_has_and_no_other() -> None:
    target = Watched()
    target.look(2, running=1)
    (lane,) = target.look(3, running=1).lanes
    assert [(row.series, row.value, row.moved_at) for row in lane.evidence] == [
        ("steps", 3.0, 5.0),
        ("running", 1.0, None),
        ("waiting", 0.0, None),
    ]


def test_the_evidence_says_when_kv_usage_last_was_progress() -> None:
    target = Watched()
    lane = LaneEvidence("0", {"steps": 3.0}, 1.0, 0.0, kv=0.25, preemptions=0.0)
    target.see(lane)
    filled = target.see(replace(lane, kv=0.5))
    assert {row.series: row.moved_at for row in filled.lanes[0].evidence}["kv_cache_ratio"] == target.t
    evicted = target.see(replace(lane, kv=0.25, preemptions=1.0))
    assert {row.series: row.moved_at for row in evicted.lanes[0].evidence}["kv_cache_ratio"] == target.t - 5.0


def test_a_clock_that_begins_anew_does_not_say_that_a_request_finished() -> None:
    target = Watched()
    lane = LaneEvidence("0", {"steps": 3.0}, 0.0, 0.0, steps=3.0, finished=50.0)
    target.see(lane)
    later = target.see(lane, after=600.0)
    assert {row.series: row.moved_at for row in later.lanes[0].evidence}["finished"] is None
    moved = target.see(replace(lane, finished=51.0))
    assert {row.series: row.moved_at for row in moved.lanes[0].evidence}["finished"] == target.t


def starving(finished: float | None, steps: bool, prompts: bool, running: float = 1.0) -> State:
    target = Watched(replace(PATIENCE, starved_after=100))
    for n in range(21):  # the last at `starved_after`
        lane = LaneEvidence(
            "0", {"steps": float(n if steps else 7), "prompts": float(n if prompts else 7)}, running, 2.0 + n % 2,
            kv=0.1 + n / 100, prompt_tokens=float(n if prompts else 7), generation_tokens=7.0, finished=finished,
        )  # fmt: skip
        verdict = target.see(lane)
    return verdict.state


def test_prompts_without_tokens_starve_also_where_nothing_tells_what_finished() -> None:
    assert starving(finished=None, steps=False, prompts=True) is State.STARVED
    assert starving(finished=9.0, steps=False, prompts=True) is State.STARVED
    assert starving(finished=None, steps=False, prompts=False) is State.BUSY


def test_a_kv_cache_that_moves_while_nothing_runs_starves_unless_steps_are_counted() -> None:
    assert starving(finished=None, steps=False, prompts=False, running=0.0) is State.STARVED
    assert starving(finished=None, steps=True, prompts=False, running=0.0) is State.BUSY


@pytest.mark.parametrize(
    ("still", "moving", "facts", "state"),
    [
        ({"waiting": 9.0, "finished": 3.0}, ("generation_tokens", "prompt_tokens"), FACTS, State.STARVED),
        ({"waiting": 9.0}, ("generation_tokens", "prompt_tokens", "finished"), FACTS, State.BUSY),
        ({"waiting": 9.0}, ("generation_tokens", "prompt_tokens"), FACTS, State.BUSY),
        ({"finished": 3.0, "generation_tokens": 7.0}, ("prompt_tokens",), FACTS, State.STARVED),
        ({"generation_tokens": 7.0}, ("prompt_tokens", "finished"), FACTS, State.BUSY),
        ({"finished": 3.0}, ("prompt_tokens",), FACTS, State.BUSY),
        ({"finished": 3.0, "generation_tokens": 7.0}, ("prompt_tokens",), replace(FACTS, tokens_at_finish=True), State.BUSY),
    ],
    ids=[
        "a queue that never shrinks and nothing finishes",
        "a queue that never shrinks while requests finish",
        "a queue that never shrinks and nothing tells what finishes",
        "prompts without tokens",
        "an embedding model: prompts without tokens, finished",
        "prompts, and nothing tells what is generated",
        "tokens that are counted when a request ends",
    ],
)
def test_work_starves_only_if_it_is_seen_not_to_get_through(
    still: Mapping[str, float], moving: tuple[str, ...], facts: Facts, state: State
) -> None:
    target = Watched(replace(PATIENCE, starved_after=100), facts)
    for n in range(21):  # the last at `starved_after`
        values = {"waiting": 0.0, **still, **dict.fromkeys(moving, float(n))}
        verdict = target.see(LaneEvidence("0", {"steps": float(n)}, 4.0, **values))  # type: ignore[arg-type]
    assert verdict.state is state, verdict.reason


def deferred(
    waiting: float, looks: int, before: int = 0, moves: bool = False, running: float = 0.0, ended: int = 99
) -> State:
    """What is said of requests that wait for another server after some looks at nothing held, until they do so no more."""
    target = Watched(replace(PATIENCE, confirm=False))
    for n in range(before + looks):
        held = (
            {"waiting": 3.0, "deferred": waiting if n < ended else 0.0} if n >= before else {"waiting": 0.0, "deferred": 0.0}
        )
        verdict = target.see(LaneEvidence("0", {"steps": float(n if moves else 7)}, running if n >= before else 0.0, **held))
    return verdict.state


def test_requests_that_all_wait_for_another_server_starve_from_the_bound_on() -> None:
    assert deferred(waiting=3.0, looks=12) is State.STALLED
    assert deferred(waiting=3.0, looks=13) is State.STARVED
    assert deferred(waiting=3.0, looks=12, before=30) is State.STALLED, "its clock starts when they arrive"
    assert deferred(waiting=3.0, looks=30, moves=True) is State.BUSY
    assert deferred(waiting=2.0, looks=30) is State.STUCK, "one of them waits for this engine"
    assert deferred(waiting=3.0, looks=30, running=1.0) is State.STUCK, "one runs"
    assert deferred(waiting=3.0, looks=21, ended=20) is State.STARVED, "a look at one that has only just come"
    assert deferred(waiting=3.0, looks=23, ended=20) is State.STARVED
    assert deferred(waiting=3.0, looks=24, ended=20) is State.STUCK, "they wait for this engine now"


def preempted(counted: Mapping[str, bool], evictions: int, looks: int) -> State:
    """What is said of a lane at the given look whose steps or tokens move, and that was evicted at its first looks."""
    target = Watched(replace(PATIENCE, confirm=False))
    for look in range(looks):
        verdict = target.see(
            LaneEvidence(
                "0",
                {"steps": float(look if counted.get("steps") else 7)},
                8.0,
                12.0,
                generation_tokens=float(look if counted["tokens"] else 7) if "tokens" in counted else None,
                preemptions=float(min(look, evictions)),
            )
        )
    return verdict.state


def test_evictions_are_a_loop_from_the_second_on_and_while_no_token_is_counted() -> None:
    assert preempted({"steps": True, "tokens": False}, evictions=1, looks=13) is State.BUSY
    assert preempted({"steps": True, "tokens": False}, evictions=2, looks=12) is State.BUSY
    assert preempted({"steps": True, "tokens": False}, evictions=2, looks=13) is State.STARVED
    assert preempted({"steps": True, "tokens": True}, evictions=99, looks=99) is State.BUSY
    assert preempted({"steps": True}, evictions=99, looks=99) is State.BUSY, "steps are all that is told"
    assert preempted({}, evictions=99, looks=99) is State.STARVED


def test_a_loop_that_ended_in_a_hang_is_stuck_a_bound_after_its_last_eviction() -> None:
    assert preempted({"tokens": False}, evictions=20, looks=20 + 13) is State.STARVED
    assert preempted({"tokens": False}, evictions=20, looks=20 + 14) is State.STUCK


def test_a_lane_without_any_counter_says_so() -> None:
    verdict = Watched().see(LaneEvidence("0", {}, None, 0.0))
    assert (verdict.state, verdict.held) == (State.UNKNOWN, None)
    assert verdict.reason.startswith("missing progress counters, running: ")
    verdict = Watched().see(LaneEvidence("0", {}, None, 0.0, missing=("x:steps",)))
    assert verdict.reason.startswith("missing x:steps: ")


def test_a_hang_that_ended_is_no_measure_of_a_decode() -> None:
    target = Watched(facts=replace(FACTS, steps_are_decodes=True))
    for _ in range(14):
        target.look(2, running=1)
    assert target.look(2, running=1, canary=silent(target.t)).state is State.STUCK
    (lane,) = target.look(3, running=1).lanes
    assert lane.bound is not None
    assert lane.bound.seconds == 60
    (lane,) = target.look(4, running=1).lanes
    assert lane.bound is not None
    assert lane.bound.seconds == 60 + 5 * 2
