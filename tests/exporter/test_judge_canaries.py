"""Which canary says something, when one is asked for, and when one must not be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest

from exporter.watched import FACTS, PATIENCE, Watched, silent
from llm_exporter.judge import (
    CanaryOutcome,
    CanaryRequest,
    CanaryResult,
    Facts,
    LaneEvidence,
    Settings,
    State,
    Verdict,
    Witness,
)


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


@pytest.mark.parametrize(
    ("result", "running", "moves", "state"),
    [
        ("silent", 1.0, False, State.STUCK),
        ("silent", 0.0, False, State.STUCK),
        ("silent", 1.0, True, State.STALLED),
        ("silent", 0.0, True, State.STALLED),
        ("answered", 1.0, False, State.STALLED),
        ("answered", 0.0, False, State.STALLED),
    ],
)
def test_silence_to_nobody_in_particular_confirms_only_where_no_other_lane_works(
    result: CanaryResult, running: float, moves: bool, state: State
) -> None:
    target = Watched()

    def lanes(other: float) -> tuple[LaneEvidence, LaneEvidence]:
        return LaneEvidence("0", {"steps": 7.0}, 1.0, 0.0), LaneEvidence("1", {"steps": other}, running, 0.0)

    for _ in range(14):
        verdict = target.see(*lanes(7.0))
    assert verdict.wants == CanaryRequest("confirm", "0")
    asked = CanaryOutcome("confirm", result, target.t, 5.0)
    assert target.see(*lanes(8.0 if moves else 7.0), canary=asked).state is state


def test_several_lanes_that_cannot_be_asked_one_by_one_get_no_idle_canary() -> None:
    lanes = tuple(LaneEvidence(name, {"steps": 7.0}, 0.0, 0.0) for name in ("0", "1"))
    assert Watched(facts=replace(FACTS, pins_lanes=False)).see(*lanes).wants is None
    assert Watched().see(*lanes).wants is not None
    assert Watched().see(lanes[0], replace(lanes[1], running=1.0)).wants is None, "work is held"
    alone = Watched(facts=replace(FACTS, pins_lanes=False)).see(lanes[0])
    assert alone.wants == CanaryRequest("idle", None)


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


def dead_decode(
    silences: tuple[int, ...],
    looks: int,
    generates_at: int | None = None,
    told: bool = True,
    kind: str = "idle",
    age: float | None = None,
) -> Verdict:
    """What is said of an engine that prefills our idle canaries and gives them no token (vLLM issue 45094)."""
    target = Watched(replace(PATIENCE, starved_after=100, start_grace=600))
    prompts, generated = 1.0, 5.0
    for n in range(looks):
        canary = silent(target.t - 1, kind) if n in silences else None
        prompts += canary is not None
        generated += n == generates_at
        tokens = {"prompt_tokens": prompts, "generation_tokens": generated if told else None}
        verdict = target.see(LaneEvidence("0", {"prompts": prompts}, 0.0, 0.0, **tokens), canary=canary, age=age)
    return verdict


def test_canaries_that_are_prefilled_and_get_no_token_tell_of_a_dead_decode() -> None:
    assert dead_decode((2, 10), looks=21).state is State.IDLE, "not yet starved_after since the first"
    starved = dead_decode((2, 10), looks=22)
    assert starved.state is State.STARVED
    assert "2 canaries in a row got none" in starved.reason
    assert starved.wants is None, "it is asked again after the usual pause"
    assert dead_decode((2,), looks=60).state is State.IDLE, "one is none in a row"
    assert dead_decode((2, 10), looks=60, generates_at=12).state is State.IDLE
    assert dead_decode((2, 10), looks=60, generates_at=5).state is State.IDLE, "the row begins anew"
    assert dead_decode((2, 10), looks=60, generates_at=1).state is State.IDLE, "somebody got a token meanwhile"
    assert dead_decode((2, 10), looks=60, told=False).state is State.IDLE, "nothing tells of tokens"
    assert dead_decode((2, 10), looks=22, age=0.0).state is State.IDLE, "it has just started"
    assert dead_decode((2, 10), looks=22, age=600.0).state is State.STARVED
    assert dead_decode((2, 10), looks=60, kind="confirm").state is State.IDLE, "it waited behind work"


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


def test_a_page_that_moved_since_the_canary_was_answered_is_not_frozen() -> None:
    target = Watched()
    for _ in range(13):
        target.look(2, running=1)
    target.look(3, running=1, canary=CanaryOutcome("confirm", "answered", target.t, 0.1, lane="0"))
    for _ in range(12):
        verdict = target.look(3, running=1)
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


@pytest.mark.parametrize(
    ("pinned", "second", "held"),
    [
        ("0", (2.0, 4.0), {"0": 1.0, "1": 4.0}),
        ("1", (2.0, 4.0), {"0": 2.0, "1": 3.0}),
        ("1", (2.0, 2.0), {"0": 2.0, "1": 2.0}),
        (None, (1.0, 4.0), {"0": 1.0, "1": 3.0}),
        (None, (2.0, 4.0), {"0": 1.0, "1": 4.0}),
    ],
)
def test_our_canary_is_taken_off_the_lane_that_shows_one_more_and_off_no_other(
    pinned: str | None, second: tuple[float, float], held: Mapping[str, float]
) -> None:
    def lanes(*running: float) -> list[LaneEvidence]:
        return [LaneEvidence(str(n), {"steps": 7.0}, value, 0.0) for n, value in enumerate(running)]

    target = Watched()
    target.see(*lanes(1.0, 3.0))
    verdict = target.see(*lanes(*second), own_canary=CanaryRequest("idle", pinned))
    assert {lane.lane: lane.held for lane in verdict.lanes} == held


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
    assert silences(lanes=(LaneEvidence("0", {"steps": 7.0}, 0.0, 0.0), LaneEvidence("1", {"steps": 7.0}, 1.0, 0.0))) == 0
    half = (LaneEvidence("0", {"steps": 7.0}),)
    assert Watched(facts=replace(FACTS, health_is_idle_canary=True)).see(*half, health=503).state is State.UNKNOWN


def test_death_is_failed_once_it_served_and_before_that_it_says_that_it_loads() -> None:
    dying = {"death": "its /health answers 503", "loading": "it has not served yet"}
    target = Watched()
    assert target.look(0, **dying).state is State.STARTING
    assert target.look(0).state is State.IDLE
    dead = target.look(0, **dying)
    assert (dead.state, dead.wants) == (State.FAILED, None)
    assert target.look(0, death="its /health answers 503").wants is None, "a dead engine is not asked"
    assert Watched().look(9, **dying).state is State.FAILED


def asked_after(*outcomes: CanaryOutcome, looks: int) -> list[float]:
    """When an idle engine is asked anew after these outcomes, each told at the look after it ended."""
    target, told = Watched(replace(PATIENCE, canary_timeout=30)), list(outcomes)
    asked: list[float] = []
    for _ in range(looks):
        ended = told.pop(0) if told and told[0].ended <= target.t + 5 else None
        if target.look(2, canary=ended).wants is not None and not told:
            asked.append(target.t)
    return asked


def test_an_idle_engine_is_asked_at_its_pace_and_the_last_question_ends_at_the_bound() -> None:
    answered = CanaryOutcome("idle", "answered", 0.0, 0.0, lane="0")
    refused = CanaryOutcome("idle", "http", 35.0, 5.0, status=401, lane="0")
    assert asked_after(answered, looks=63) == [300.0, 305.0, 310.0]
    assert asked_after(silent(0.1, "idle"), looks=10) == [35.0, 40.0, 45.0]
    twice = asked_after(silent(0.1, "idle"), silent(35.0, "idle"), looks=71)
    assert twice == [340.0, 345.0, 350.0], "a stuck engine is asked at the same pace, it may live again"
    assert asked_after(silent(0.1, "idle"), refused, looks=71) == [340.0, 345.0, 350.0]


def test_one_silent_canary_is_no_proof_however_long_ago() -> None:
    target = Watched()
    target.look(2)
    target.look(2, canary=silent(target.t, "idle"))
    assert {target.look(2).state for _ in range(60)} == {State.IDLE}


def test_the_lane_that_was_silent_once_is_asked_before_one_that_was_never_asked() -> None:
    target = Watched(replace(PATIENCE, canary_timeout=30))
    lanes = tuple(LaneEvidence(name, {"steps": 7.0}, 0.0, 0.0) for name in ("0", "1"))
    target.see(*lanes)
    wants = [target.see(*lanes, canary=silent(0.0, "idle", lane="1")).wants, *(target.see(*lanes).wants for _ in range(5))]
    assert wants == [None] * 5 + [CanaryRequest("idle", "1")]


def test_the_lane_that_is_flat_longest_is_asked_first_and_an_engine_that_pins_none_as_a_whole() -> None:
    def asked(pins: bool) -> CanaryRequest | None:
        target = Watched(facts=replace(FACTS, pins_lanes=pins))
        for n in range(20):
            steps = {"0": float(min(n, 4)), "1": 7.0}
            verdict = target.see(*(LaneEvidence(name, {"steps": value}, 1.0, 0.0) for name, value in steps.items()))
        return verdict.wants

    assert asked(pins=True) == CanaryRequest("confirm", "1")
    assert asked(pins=False) == CanaryRequest("confirm", None), "no other lane moves"


def test_what_could_not_be_asked_is_asked_at_once_after_a_restart() -> None:
    refused = CanaryOutcome("idle", "http", 0.0, 0.1, status=401, lane="0")
    target = Watched()
    target.look(2)
    assert target.look(2, canary=refused).wants is None
    assert target.look(2, incarnation="2").wants is not None
    working = Watched()
    working.look(2)
    working.look(2, canary=refused)
    for _ in range(13):
        verdict = working.look(2, running=1, incarnation="2")
    assert verdict.wants == CanaryRequest("confirm", "0")


def test_requests_that_are_open_on_an_idle_engine_are_reason_to_ask_although_it_was_verified() -> None:
    target = Watched()
    target.look(2)
    target.look(2, canary=CanaryOutcome("idle", "answered", 0.0, 0.1, lane="0"))
    looks = [target.look(2, witness=Witness(in_flight=2.0)) for _ in range(7)]
    assert [verdict.wants is not None for verdict in looks] == [False] * 6 + [True]
    sent = target.t
    looks = [target.look(2, canary=silent(sent, "idle")), *(target.look(2) for _ in range(6))]
    assert [verdict.wants is not None for verdict in looks] == [False] * 5 + [True] * 2, "and once more at the bound"


def test_a_lane_that_cannot_be_asked_alone_is_asked_about_once_per_bound() -> None:
    """The answer came from another lane, or nobody knows from which; asking at every look would teach no more."""
    target = Watched(facts=replace(FACTS, pins_lanes=False))
    lanes = (LaneEvidence("0", {"steps": 7.0}, 0.0, 0.0), LaneEvidence("1", {"steps": 7.0}, 2.0, 0.0))
    asked: list[float] = []
    canary: CanaryOutcome | None = None
    for _ in range(60):
        verdict = target.see(*lanes, canary=canary)
        canary = None
        if verdict.wants is not None:
            asked.append(target.t)
            canary = CanaryOutcome("confirm", "answered", target.t, 0.1)
    assert verdict.state is State.STALLED
    assert all(60 <= later - sooner <= 70 for sooner, later in pairwise(asked))
    assert len(asked) == 4


BOUND = "1 running, 0 waiting, nothing moved for 1m, bound 1m (stuck_after)"


@pytest.mark.parametrize(
    ("facts", "more", "state", "reason"),
    [
        (FACTS, {}, State.STALLED, f"{BOUND}; asking the engine with one tiny request"),
        (FACTS, {"own_canary": CanaryRequest("confirm", "0")}, State.STALLED, f"{BOUND}; a canary is in flight"),
        (replace(FACTS, canary="it has none"), {}, State.STALLED, f"{BOUND}; cannot confirm: it has none"),
        (
            FACTS,
            {"canary": CanaryOutcome("confirm", "refused", 55.0, 0.1, lane="0")},
            State.STALLED,
            f"{BOUND}; cannot confirm: refused",
        ),
        (FACTS, {"canary": silent(55.0)}, State.STUCK, f"{BOUND}; the canary got no answer in 5s"),
        (FACTS, {"death": "it is dead"}, State.FAILED, "it is dead; 1 running, 0 waiting"),
        (FACTS, {"death": "it is dead", "canary": silent(55.0)}, State.STUCK, f"{BOUND}; the canary got no answer in 5s"),
    ],
)
def test_what_is_said_of_work_that_is_flat_at_its_bound(
    facts: Facts, more: Mapping[str, object], state: State, reason: str
) -> None:
    target = Watched(facts=facts)
    for _ in range(12):
        target.look(2, running=1)
    verdict = target.look(2, running=1, **more)
    assert (verdict.state, verdict.reason) == (state, reason)


def test_what_is_said_of_work_before_it_is_stalled() -> None:
    target = Watched()
    said = [target.look(steps, running=1).reason for steps in (2, 2, 12, 12, 12, 12, 12, 12)]
    assert said == [
        "1 running, 0 waiting; first look, progress not known yet; no request sent",
        "1 running, 0 waiting, nothing moved for 5s yet; no request sent",
        "1 running, 0 waiting, 1 steps/s over 10s; no request sent",
        "1 running, 0 waiting, 1 steps/s over 10s; no request sent",
        "1 running, 0 waiting, nothing moved for 10s yet; no request sent",
        "1 running, 0 waiting, nothing moved for 15s yet; no request sent",
        "1 running, 0 waiting, nothing moved for 20s yet; no request sent",
        "1 running, 0 waiting, nothing moved for 25s; stuck at 1m (stuck_after)",
    ]
