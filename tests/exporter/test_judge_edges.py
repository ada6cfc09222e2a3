"""Edges of the judge that no incident reaches: which canary says something, and where two limits meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from llm_exporter.judge import (
    CanaryOutcome,
    CanaryRequest,
    Facts,
    History,
    LaneEvidence,
    LoopEvidence,
    Observation,
    Settings,
    State,
    Verdict,
    Witness,
    judge,
)

FACTS = Facts("made-up", pins_lanes=True)
PATIENCE = Settings(interval=5, stalled_after=20, stuck_after=60, start_grace=0, canary_every=300)


class Watched:
    """A target that is looked at every five seconds."""

    def __init__(self, settings: Settings = PATIENCE, facts: Facts = FACTS) -> None:
        self.settings, self.facts = settings, facts
        self.history, self.t = History(), -5.0

    def look(self, steps: float, running: float = 0.0, **more: object) -> Verdict:
        """The next look at its one lane."""
        lane = LaneEvidence("0", {"steps": steps}, running, 0.0, steps=steps)
        return self.see(lane, **more)

    def see(self, *lanes: LaneEvidence, after: float = 5.0, **more: object) -> Verdict:
        self.t += after
        seen = Observation(1e9 + self.t, "answered", facts=self.facts, lanes=lanes, incarnation="1")
        changes: Mapping[str, object] = more
        self.history, verdict = judge(self.history, replace(seen, **changes), self.t, self.settings)  # type: ignore[arg-type]
        return verdict


def silent(began: float, kind: str = "confirm", lane: str | None = "0") -> CanaryOutcome:
    return CanaryOutcome(kind, "silent", began, 5.0, lane=lane)  # type: ignore[arg-type]


def test_a_canary_that_was_sent_before_the_evidence_became_flat_confirms_nothing() -> None:
    target = Watched()
    target.look(1, running=1)
    for _ in range(14):
        verdict = target.look(2, running=1)
    assert verdict.state is State.STALLED
    assert verdict.wants is not None
    verdict = target.look(2, running=1, canary=silent(began=0.0))
    assert (verdict.state, verdict.wants is not None) == (State.STALLED, True)
    verdict = target.look(2, running=1, canary=silent(began=target.t))
    assert verdict.state is State.STUCK


def test_a_page_that_moved_since_the_canary_was_sent_is_no_silence() -> None:
    target = Watched()
    target.look(1, running=1)
    for _ in range(13):
        target.look(2, running=1)
    sent = target.t
    verdict = target.look(3, running=1, canary=silent(began=sent))
    assert (verdict.state, verdict.progress) == (State.BUSY, 1)
    assert target.history.lanes["0"].confirmation is None


def test_work_that_arrives_behind_our_idle_canary_is_stalled_and_says_so() -> None:
    target = Watched()
    target.look(2)
    for _ in range(6):
        verdict = target.look(2, running=2, own_canary=CanaryRequest("idle", "0"))
    assert (verdict.state, verdict.wants) == (State.STALLED, None)
    assert verdict.reason.endswith("a canary is in flight")
    assert "in flight" not in target.look(2, running=2).reason


@pytest.mark.parametrize(("lane", "answered"), [("0", True), ("1", True), (None, False)])
def test_a_canary_that_was_not_pinned_verifies_no_lane_among_several(lane: str | None, answered: bool) -> None:
    target = Watched()
    lanes = tuple(LaneEvidence(name, {"steps": 7.0}, 0.0, 0.0) for name in ("0", "1"))
    target.see(*lanes)
    verdict = target.see(*lanes, canary=CanaryOutcome("idle", "answered", target.t, 0.1, lane=lane))
    assert {v.lane for v in verdict.lanes if v.verified_at is not None} == ({lane} if answered else set())


def test_silence_to_nobody_in_particular_is_of_all_lanes_only_if_all_are_flat() -> None:
    def after_silence(running: float) -> Verdict:
        target = Watched()
        lanes = (
            LaneEvidence("0", {"steps": 7.0}, 1.0, 0.0, steps=7.0),
            LaneEvidence("1", {"steps": 7.0}, running, 0.0, steps=7.0),
        )
        for _ in range(14):
            target.see(*lanes)
        return target.see(*lanes, canary=silent(target.t, lane=None))

    assert after_silence(running=1.0).state is State.STUCK
    assert after_silence(running=0.0).state is State.STALLED


def test_several_lanes_that_cannot_be_asked_one_by_one_get_no_idle_canary() -> None:
    lanes = tuple(LaneEvidence(name, {"steps": 7.0}, 0.0, 0.0) for name in ("0", "1"))
    assert Watched(facts=replace(FACTS, pins_lanes=False)).see(*lanes).wants is None
    assert Watched().see(*lanes).wants is not None


@pytest.mark.parametrize(("gap", "state"), [(30.0, State.STALLED), (31.0, State.BUSY)])
def test_the_flat_clock_goes_on_over_a_gap_of_thirty_seconds_and_no_more(gap: float, state: State) -> None:
    target = Watched()
    lane = LaneEvidence("0", {"steps": 2.0}, 1.0, 0.0, steps=2.0)
    target.see(lane)
    target.see(lane)
    verdict = target.see(lane, after=gap)
    assert (verdict.state, verdict.progress) == (state, 0 if state is State.STALLED else None)


@pytest.mark.parametrize(("reads", "state"), [(1, State.IDLE), (2, State.STUCK)])
def test_a_blocked_loop_is_proof_on_two_reads(reads: int, state: State) -> None:
    target = Watched()
    for _ in range(reads):
        verdict = target.look(2, loop=LoopEvidence(300.0, blocked=300.0))
    assert verdict.state is state
    assert target.look(2, loop=LoopEvidence(300.0, blocked=299.9)).state is State.IDLE


def test_a_lane_that_vanished_is_missed_for_five_minutes() -> None:
    target = Watched()
    both = tuple(LaneEvidence(name, {"steps": 7.0}, 0.0, 0.0) for name in ("0", "1"))
    target.see(*both)
    verdict = target.see(both[0])
    assert (verdict.state, verdict.lane) == (State.UNKNOWN, "1")
    assert "lane 1 was there and is missing" in verdict.reason
    for _ in range(58):
        verdict = target.see(both[0])
    assert verdict.state is State.UNKNOWN
    target.see(both[0])
    assert target.see(both[0]).state is State.IDLE


def test_an_elastic_engine_may_grow() -> None:
    target = Watched()
    target.see(LaneEvidence("0", {"steps": 7.0}, 0.0, 0.0))
    verdict = target.see(LaneEvidence("0", {"steps": 8.0}, 0.0, 0.0), LaneEvidence("1", {"steps": 0.0}, 0.0, 0.0))
    assert (verdict.state, verdict.restarted, len(verdict.lanes)) == (State.IDLE, False, 2)


def test_a_failed_load_is_failed_although_it_never_served() -> None:
    def said(**more: object) -> Verdict:
        return Watched().see(**more)

    assert said(death="it failed to load", died_loading=True).state is State.FAILED
    assert said(death="it failed to load").state is State.UNKNOWN


def test_a_bound_shorter_than_two_pauses_is_stalled_first() -> None:
    target = Watched(replace(PATIENCE, interval=15, stuck_after=20, confirm=False))
    lane = LaneEvidence("0", {"steps": 2.0}, 1.0, 0.0, steps=2.0)
    states = [target.see(lane).state for _ in range(8)]
    assert states == [*[State.BUSY] * 7, State.STUCK]


def test_a_negative_gauge_hides_no_work() -> None:
    lane = LaneEvidence("0", {"steps": 2.0}, 1.0, -1.0)
    assert Watched().see(lane).held == 1


def test_a_single_counter_that_falls_is_progress_and_all_that_fall_are_another_process() -> None:
    def after(**counters: float) -> Verdict:
        target = Watched()
        for _ in range(6):
            target.see(LaneEvidence("0", {"steps": 7.0, "tokens": 9.0}, 1.0, 0.0))
        return target.see(LaneEvidence("0", counters, 1.0, 0.0), incarnation=None)

    wave = after(steps=0.0, tokens=9.0)
    assert (wave.state, wave.progress, wave.restarted) == (State.BUSY, 1, False)
    anew = after(steps=0.0, tokens=0.0)
    assert (anew.state, anew.progress, anew.restarted) == (State.BUSY, None, True)


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


def test_without_token_counters_the_first_step_ends_an_unknown_start() -> None:
    target = Watched(replace(PATIENCE, start_grace=400, confirm=False))
    target.see(LaneEvidence("0", {"steps": 0.0}, 0.0, 0.0, steps=0.0))
    for _ in range(20):
        verdict = target.look(7, running=1)
    assert verdict.state is State.STUCK, verdict.sentence


@pytest.mark.parametrize(
    ("facts", "settings", "why"),
    [
        (replace(FACTS, idle_canary="it sleeps"), PATIENCE, "it sleeps"),
        (replace(FACTS, canary="it has none"), PATIENCE, "it has none"),
        (FACTS, replace(PATIENCE, idle_canary=False), "idle canaries are off"),
    ],
)
def test_an_idle_engine_says_why_it_is_not_verified(facts: Facts, settings: Settings, why: str) -> None:
    verdict = Watched(settings, facts).look(2)
    assert (verdict.wants, verdict.reason.endswith(f"; {why}")) == (None, True)


def test_an_idle_canary_that_could_not_be_used_is_tried_again_after_its_pause() -> None:
    target = Watched()
    assert target.look(2).wants is not None
    refused = CanaryOutcome("idle", "http", 0.0, 0.1, status=401, lane="0")
    verdict = target.look(2, canary=refused)
    assert verdict.reason.endswith("the canary could not be used: 401")
    assert (verdict.wants, verdict.canary_available) == (None, False)
    looks = [target.look(2) for _ in range(60)]
    assert [n for n, verdict in enumerate(looks) if verdict.wants is not None] == [59]


def test_an_engine_that_answers_behind_a_frozen_page_is_asked_again_after_another_bound() -> None:
    target = Watched()
    for _ in range(13):
        verdict = target.look(2, running=1)
    assert verdict.wants is not None
    answered = CanaryOutcome("confirm", "answered", target.t, 0.0, lane="0")
    verdict = target.look(2, running=1, canary=answered)
    assert (verdict.state, verdict.progress, verdict.wants) == (State.UNKNOWN, None, None)
    looks = [target.look(2, running=1) for _ in range(12)]
    assert {verdict.state for verdict in looks} == {State.UNKNOWN}
    assert [n for n, verdict in enumerate(looks) if verdict.wants is not None] == [10, 11]
    assert target.look(2, running=1, own_canary=CanaryRequest("idle", None)).wants is None


def test_the_evidence_is_every_series_that_the_page_has_and_no_other() -> None:
    target = Watched()
    target.look(2, running=1)
    (lane,) = target.look(3, running=1).lanes
    assert [(row.series, row.value, row.moved_at) for row in lane.evidence] == [
        ("steps", 3.0, 5.0),
        ("running", 1.0, None),
        ("waiting", 0.0, None),
    ]


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


def dead_decode(silences: tuple[int, ...], looks: int, generates_at: int | None = None, told: bool = True) -> Verdict:
    """What is said of an engine that prefills our idle canaries and gives them no token (vLLM issue 45094)."""
    target = Watched(replace(PATIENCE, starved_after=100))
    prompts, generated = 1.0, 5.0
    for n in range(looks):
        canary = silent(target.t, "idle") if n in silences else None
        prompts += canary is not None
        generated += n == generates_at
        tokens = {"prompt_tokens": prompts, "generation_tokens": generated if told else None}
        verdict = target.see(LaneEvidence("0", {"prompts": prompts}, 0.0, 0.0, **tokens), canary=canary)
    return verdict


def test_canaries_that_are_prefilled_and_get_no_token_tell_of_a_dead_decode() -> None:
    assert dead_decode((2, 10), looks=21).state is State.IDLE, "not yet starved_after since the first"
    starved = dead_decode((2, 10), looks=22)
    assert starved.state is State.STARVED
    assert "2 canaries in a row got none" in starved.reason
    assert dead_decode((2,), looks=60).state is State.IDLE, "one is none in a row"
    assert dead_decode((2, 10), looks=60, generates_at=12).state is State.IDLE
    assert dead_decode((2, 10), looks=60, generates_at=5).state is State.IDLE, "the row begins anew"
    assert dead_decode((2, 10), looks=60, generates_at=1).state is State.IDLE, "somebody got a token meanwhile"
    assert dead_decode((2, 10), looks=60, told=False).state is State.IDLE, "nothing tells of tokens"


def deferred(waiting: float, looks: int, before: int = 0, moves: bool = False) -> State:
    """What is said of requests that all wait for another server, after some looks at nothing held."""
    target = Watched()
    for n in range(before + looks):
        held = {"waiting": 3.0, "deferred": waiting} if n >= before else {"waiting": 0.0, "deferred": 0.0}
        verdict = target.see(LaneEvidence("0", {"steps": float(n if moves else 7)}, 0.0, **held))
    return verdict.state


def test_requests_that_all_wait_for_another_server_starve_from_the_bound_on() -> None:
    assert deferred(waiting=3.0, looks=12) is State.STALLED
    assert deferred(waiting=3.0, looks=13) is State.STARVED
    assert deferred(waiting=3.0, looks=12, before=30) is State.STALLED, "its clock starts when they arrive"
    assert deferred(waiting=3.0, looks=30, moves=True) is State.BUSY
    assert deferred(waiting=2.0, looks=30) is State.STALLED, "one of them waits for this engine"


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


@pytest.mark.parametrize(
    ("before", "after", "verified"),
    [(1.0, 2.0, True), (2.0, 1.0, True), (1.0, 1.0, False), (None, 2.0, False), (2.0, None, False)],
)
def test_a_counter_of_the_idle_loop_verifies_by_moving_and_not_by_appearing(
    before: float | None, after: float | None, verified: bool
) -> None:
    target = Watched()
    target.see(LaneEvidence("0", {"steps": 7.0}, 0.0, 0.0, alive=before))
    (lane,) = target.see(LaneEvidence("0", {"steps": 7.0}, 0.0, 0.0, alive=after)).lanes
    assert (lane.verified_at is not None) is verified


def test_a_lane_without_any_counter_says_so() -> None:
    verdict = Watched().see(LaneEvidence("0", {}, None, 0.0))
    assert (verdict.state, verdict.held) == (State.UNKNOWN, None)
    assert verdict.reason.startswith("missing progress counters, running: ")
    verdict = Watched().see(LaneEvidence("0", {}, None, 0.0, missing=("x:steps",)))
    assert verdict.reason.startswith("missing x:steps: ")


def test_reads_of_a_blocked_loop_are_in_a_row_but_for_looks_that_failed() -> None:
    blocked = LoopEvidence(400.0, blocked=400.0)
    target = Watched()
    target.look(2, loop=blocked)
    target.look(2)
    assert target.look(2, loop=blocked).state is State.IDLE
    failed = target.see(reach="timeout")
    assert failed.state is State.UNREACHABLE
    assert target.look(2, loop=blocked).state is State.STUCK


def test_a_side_port_proves_a_blocked_loop_while_the_page_does_not_answer() -> None:
    target = Watched()
    target.look(2)
    first, second = (target.see(reach="timeout", loop=LoopEvidence(400.0, blocked=400.0)) for _ in range(2))
    assert (first.state, second.state, second.progress) == (State.UNREACHABLE, State.STUCK, 0)


def test_a_new_start_time_or_counters_that_all_fell_are_another_process_each_by_itself() -> None:
    target = Watched()
    assert not target.look(7, running=1).restarted, "the first look knows of no other"
    assert target.look(8, running=1, incarnation="2").restarted, "a start time alone, though the counters grew"
    assert not target.look(9, running=1, incarnation=None).restarted, "a start time that is missing is none"
    assert not target.look(9, running=1, incarnation="2").restarted
    assert target.look(3, running=1, incarnation=None).restarted, "counters alone"


def test_a_lane_that_starts_again_leaves_the_clocks_of_the_others() -> None:
    target = Watched(replace(PATIENCE, confirm=False))
    for n in range(13):
        begun = 7.0 if n < 6 else 2.0
        verdict = target.see(
            *(LaneEvidence(name, {"steps": steps}, 1.0, 0.0) for name, steps in (("0", 7.0), ("1", begun))), incarnation=None
        )
        assert verdict.restarted == (n == 6)
    assert {lane.lane: lane.state for lane in verdict.lanes} == {"0": State.STUCK, "1": State.STALLED}


def test_a_process_whose_counters_fell_has_not_served_yet() -> None:
    target = Watched()
    target.look(7)
    verdict = target.look(0, incarnation=None, death="its /health answers 503", loading="it has not served yet")
    assert (verdict.state, verdict.restarted) == (State.STARTING, True)


def test_a_lane_that_starts_again_is_due_to_be_asked() -> None:
    target = Watched()

    def look(second: float, **more: object) -> Verdict:
        lanes = (LaneEvidence("0", {"steps": 7.0}, 0.0, 0.0), LaneEvidence("1", {"steps": second}, 0.0, 0.0))
        return target.see(*lanes, incarnation=None, **more)

    look(7.0)
    for lane in ("0", "1"):
        verdict = look(7.0, canary=CanaryOutcome("idle", "answered", target.t, 0.1, lane=lane))
    assert verdict.wants is None
    assert look(7.0, canary=CanaryOutcome("idle", "http", target.t, 0.1, status=401)).wants is None
    verdict = look(2.0)
    assert verdict.wants is not None
    assert verdict.wants.lane == "1"


def several(*tracks: tuple[str | None, Mapping[str, float]]) -> bool:
    """Whether these answers in turn are said to be of several processes."""
    target = Watched()
    for incarnation, counters in tracks:
        verdict = target.see(LaneEvidence("0", counters, 1.0, 0.0), incarnation=incarnation)
    return verdict.reason.startswith("several processes")


def test_several_processes_are_two_falls_and_a_return_between_them() -> None:
    def steps(*values: float) -> list[tuple[None, Mapping[str, float]]]:
        return [(None, {"steps": value}) for value in values]

    assert several(*steps(90, 5, 91, 6))
    assert not several(*steps(90, 5, 91, 92)), "one fall: a process that overtook the one before"
    assert not several(*steps(90, 50, 5, 51)), "two restarts"
    assert several(*steps(90, 5, 90, 5)), "they may stand still"
    assert not several(*steps(90, 5, 91, 92, 93, 94, 95, 96, 97, 98, 5)), "ten looks at one process between"


def test_several_processes_are_told_by_their_start_times_where_they_have_them() -> None:
    one, other, third = ("a", {"steps": 90.0}), ("b", {"steps": 95.0}), ("c", {"steps": 99.0})
    assert several(one, other, one)
    assert several(one, other, third, one), "three processes"
    assert not several(one, other, third), "two restarts"
    sometimes = (("a" if steps % 2 else None, {"steps": float(steps)}) for steps in range(91, 99))
    assert not several(*sometimes), "a start time that is missing at times"
    assert not several(one, (None, {"steps": 5.0}), (None, {"steps": 95.0}), (None, {"steps": 6.0})), "nobody came back"


def test_counters_that_overtake_the_former_ones_by_and_by_are_no_return() -> None:
    def page(steps: float, tokens: float) -> tuple[None, Mapping[str, float]]:
        return None, {"steps": steps, "tokens": tokens, "never": 0.0}

    assert not several(page(20, 20), page(1, 1), page(30, 10), page(40, 40), page(2, 2))
    assert several(page(20, 20), page(1, 1), page(40, 40), page(2, 2))


def test_restarts_with_a_closed_port_between_are_no_several_processes() -> None:
    def lives(refused: bool) -> Verdict:
        target = Watched()
        for steps in (50.0, 3.0, 60.0, 2.0):
            target.see(LaneEvidence("0", {"steps": steps - 1}, 0.0, 0.0), incarnation=None)
            verdict = target.see(LaneEvidence("0", {"steps": steps}, 0.0, 0.0), incarnation=None)
            if refused:
                target.see(reach="refused")
        return verdict

    assert lives(refused=False).reason.startswith("several processes answer here")
    assert lives(refused=True).state is State.IDLE


def test_a_closed_port_tells_what_is_known_of_the_process() -> None:
    assert "nothing shows that a process exists" in Watched().see(reach="refused").reason
    target = Watched()
    target.look(2)
    assert "after it was up (" in target.see(reach="refused").reason
    assert "killed for memory" in target.see(reach="refused", witness=Witness(oom_killed=True)).reason


@pytest.mark.parametrize(
    ("started", "state"), [(None, State.DOWN), (1e9 - 9, State.DOWN), (1e9, State.DOWN), (1e9 + 1, State.STARTING)]
)
def test_a_running_container_is_starting_only_if_it_has_not_served_since_its_start(
    started: float | None, state: State
) -> None:
    running = Witness(container="running", container_started=started)
    never_up = Watched()
    assert [never_up.see(reach="refused", witness=running).state for _ in range(3)] == [State.STARTING] * 3
    target = Watched()
    target.look(2)
    assert [target.see(reach="refused", witness=running).state for _ in range(3)] == [state] * 3


def test_the_culprit_is_named_if_it_is_known() -> None:
    target = Watched()
    target.look(2, loop=LoopEvidence(400.0, "tokenize", 400.0))
    assert " in tokenize, seen on 2 reads" in target.look(2, loop=LoopEvidence(400.0, "tokenize", 400.0)).reason
    assert "blocked for 6m40s, seen on 3 reads" in target.look(2, loop=LoopEvidence(400.0, None, 400.0)).reason


def test_a_canary_that_was_sent_before_the_work_arrived_confirms_nothing_of_it() -> None:
    target = Watched()
    for _ in range(3):
        target.look(2)
    target.look(2, running=1)
    target.look(2, running=1, canary=silent(began=7.0))
    for _ in range(12):
        verdict = target.look(2, running=1)
    assert (verdict.state, verdict.wants is not None) == (State.STALLED, True)


def test_a_canary_that_was_answered_before_the_work_arrived_says_nothing_of_a_frozen_page() -> None:
    target = Watched()
    target.look(2)
    target.look(2, canary=CanaryOutcome("idle", "answered", target.t, 0.1, lane="0"))
    for _ in range(13):
        verdict = target.look(2, running=1)
    assert (verdict.state, verdict.wants is not None) == (State.STALLED, True)


def test_a_silent_canary_whose_work_has_left_meanwhile_confirms_nothing() -> None:
    target = Watched()
    for _ in range(14):
        target.look(2, running=1)
    assert target.look(2, canary=silent(began=target.t)).state is State.IDLE
    assert target.look(2, running=1).state is State.BUSY


def test_a_canary_that_was_sent_with_a_look_is_silent_if_nothing_moved_since_that_look() -> None:
    """Recordings may give both the same time."""
    target = Watched()
    target.look(2)
    target.look(3, canary=None)
    target.look(3, canary=silent(target.t, "idle"))
    assert target.history.lanes["0"].silent_idle == 1
    first = Watched()
    first.look(2)
    first.look(2, canary=silent(first.t, "idle"))
    assert first.history.lanes["0"].silent_idle == 1


def test_a_last_question_that_could_not_be_put_is_put_again_after_the_canary_s_timeout() -> None:
    target = Watched(replace(PATIENCE, canary_timeout=20))
    for _ in range(13):
        verdict = target.look(2, running=1)
    assert verdict.wants is not None
    target.look(2, running=1, canary=CanaryOutcome("confirm", "http", target.t, 5.0, status=401))
    wants = [target.look(2, running=1).wants is not None for _ in range(5)]
    assert wants == [False, False, False, True, True]


def test_an_engine_that_says_that_it_loads_is_not_asked() -> None:
    target = Watched()
    target.look(2)
    assert target.look(2, loading="it warms up").wants is None
    assert target.look(2).wants is not None


def test_nothing_is_asked_while_our_request_is_in_flight() -> None:
    target = Watched()
    assert target.look(2).wants is not None
    assert target.look(2, own_canary=CanaryRequest("idle", None)).wants is None
    assert target.look(2).wants is not None


def health_503(looks: int, *, own: bool = True, **at_third: object) -> Verdict:
    """What is said of an idle engine whose health answers 503, as a canary of its own or not; the third look is special."""
    target = Watched(replace(PATIENCE, idle_canary=False), replace(FACTS, health_is_idle_canary=own))
    for n in range(looks):
        special: Mapping[str, object] = {"health": 503} | (at_third if n == 2 else {})
        lanes = special.get("lanes", (LaneEvidence("0", {"steps": 7.0}, 0.0, 0.0, steps=7.0),))
        verdict = target.see(*lanes, **{k: v for k, v in special.items() if k != "lanes"})  # type: ignore[misc]
    return verdict


def test_a_health_that_is_a_canary_of_its_own_is_silent_at_503_and_nothing_held() -> None:
    assert health_503(13).state is State.STUCK
    assert health_503(13, health=None).state is State.STUCK, "no answer of the health is no answer that ends the row"
    assert health_503(13, health=200).state is State.IDLE, "the row begins anew"
    assert health_503(99, own=False).state is State.IDLE
    begun = health_503(14, lanes=(LaneEvidence("0", {"steps": 8.0}, 1.0, 0.0),))
    assert begun.state is State.IDLE, "work in between"


def test_a_health_of_503_on_a_page_that_was_not_read_is_no_silence() -> None:
    def silences(**second: object) -> int:
        target = Watched(facts=replace(FACTS, health_is_idle_canary=True))
        target.look(7, health=200)
        for _ in range(3):
            target.see(**{"health": 503, **second})  # type: ignore[arg-type]
        return target.history.lanes["0"].silent_idle

    assert silences(reach="timeout") == 0
    assert silences(reach="answered", loading="its page is empty") == 0


def test_death_is_failed_once_it_served_and_before_that_it_says_that_it_loads() -> None:
    dying = {"death": "its /health answers 503", "loading": "it has not served yet"}
    target = Watched()
    assert target.look(0, **dying).state is State.STARTING
    assert target.look(0).state is State.IDLE
    assert target.look(0, **dying).state is State.FAILED
    assert Watched().look(9, **dying).state is State.FAILED


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


def asked_at(outcome: CanaryOutcome, looks: int) -> list[float]:
    """When an idle engine is asked anew after this outcome, looked at every five seconds."""
    target = Watched()
    assert target.look(2).wants is not None
    seen = [(target.t, verdict) for verdict in (target.look(2, canary=outcome),)]
    for _ in range(looks):
        verdict = target.look(2)
        seen.append((target.t, verdict))
    return [t for t, verdict in seen if verdict.wants is not None]


def test_an_idle_engine_is_asked_at_its_pace_and_the_last_question_ends_at_the_bound() -> None:
    assert asked_at(CanaryOutcome("idle", "answered", 0.0, 0.0, lane="0"), 62) == [300.0, 305.0, 310.0, 315.0]
    assert asked_at(silent(0.1, "idle"), 8) == [35.0, 40.0, 45.0]
