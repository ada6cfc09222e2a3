"""Our own canary is not work that somebody waits for, and a hung engine's gauges never contain it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llm_exporter.judge import (
    CanaryOutcome,
    CanaryRequest,
    CanaryResult,
    Facts,
    History,
    LaneEvidence,
    Observation,
    Settings,
    State,
    Verdict,
    judge,
)

PATIENCE = Settings(interval=5, stalled_after=30, stuck_after=60, start_grace=0, idle_canary=False)


def look(t: float, running: float, steps: float = 7.0, waiting: float = 0.0) -> Observation:
    evidence = LaneEvidence("0", {"steps": steps}, running, waiting, steps=steps)
    return Observation(1e9 + t, "answered", facts=Facts("made-up", pins_lanes=True), lanes=(evidence,), incarnation="1")


def until_asked(running: float) -> tuple[History, float]:
    """Flat with work held, until the judge wants its last question answered."""
    history, t = History(), 0.0
    while True:
        history, verdict = judge(history, look(t, running), t, PATIENCE)
        t += 5
        if verdict.wants is not None:
            return history, t
        assert t < 100


def in_flight(history: History, seen: Observation, t: float) -> tuple[History, Verdict]:
    return judge(history, replace(seen, own_canary=CanaryRequest("confirm", "0")), t, PATIENCE)


def test_the_only_request_of_a_hung_engine_is_not_taken_for_our_canary() -> None:
    history, began = until_asked(running=1)
    for t in (began, began + 5, began + 10):
        history, verdict = in_flight(history, look(t, running=1), t)
        assert (verdict.state, verdict.held) == (State.STALLED, 1)
    silent = CanaryOutcome("confirm", "silent", began - 5, 30.0, lane="0")
    history, verdict = judge(history, replace(look(began + 30, 1), canary=silent), began + 30, PATIENCE)
    assert verdict.state is State.STUCK
    assert verdict.lanes[0].flat_since == 0.0


def test_a_living_engine_shows_the_canary_beside_the_work_and_it_is_taken_off() -> None:
    history, began = until_asked(running=1)
    _, verdict = in_flight(history, look(began, running=2), began)
    assert verdict.held == 1
    _, verdict = in_flight(history, look(began, running=1, waiting=1), began)
    assert verdict.held == 1


def test_an_idle_engine_that_holds_only_our_canary_stays_idle() -> None:
    history, _ = judge(History(), look(0, running=0), 0, PATIENCE)
    for t in (5.0, 10.0, 40.0):
        history, verdict = in_flight(history, look(t, running=0, waiting=1), t)
        assert (verdict.state, verdict.held) == (State.IDLE, 0)
    history, verdict = in_flight(history, look(45, running=2, waiting=1), 45.0)
    assert (verdict.state, verdict.held) == (State.BUSY, 2)


IDLE_PATIENCE = Settings(interval=5, stalled_after=30, stuck_after=60, stuck_after_blind=900, start_grace=0)


def silent_twice(facts: Facts, patience: Settings = IDLE_PATIENCE) -> tuple[History, Verdict]:
    """An engine that claims to hold nothing lets two idle canaries go unanswered; judged at 70 s."""
    ended = {
        35: CanaryOutcome("idle", "silent", 1.0, 30.0, lane="0"),
        70: CanaryOutcome("idle", "silent", 36.0, 30.0, lane="0"),
    }
    history, verdict = judge(History(), replace(look(0, 0), facts=facts), 0, patience)
    for t in range(5, 75, 5):
        history, verdict = judge(history, replace(look(t, 0), facts=facts, canary=ended.get(t)), t, patience)
    return history, verdict


@pytest.mark.parametrize(("sighted", "bound"), [(True, 60), (False, 900)])
def test_silent_idle_canaries_prove_a_hang_only_at_the_bound(sighted: bool, bound: int) -> None:
    """A first step that compiles, or a lone long prompt on vLLM 0.8.5 to 0.10.1, shows 0/0 and lets canaries wait."""
    facts = Facts("made-up", sighted=sighted, sight_why="made up", pins_lanes=True)
    history, verdict = silent_twice(facts)
    assert verdict.state is (State.STUCK if bound == 60 else State.IDLE)
    for t in range(75, 930, 5):
        history, verdict = judge(history, replace(look(t, 0), facts=facts), t, IDLE_PATIENCE)
        assert verdict.state is (State.STUCK if t - 1 >= bound else State.IDLE)
    assert verdict.lanes[0].flat_since == 1.0


def test_two_silent_idle_canaries_within_the_bound_prove_nothing() -> None:
    facts = Facts("made-up", sighted=True, pins_lanes=True, stuck_after=300)
    patience = Settings(interval=5, stalled_after=30, stuck_after=None, start_grace=0)
    history, verdict = silent_twice(facts, patience)
    assert verdict.state is State.IDLE
    assert "stuck at 5m" in verdict.reason
    history, verdict = judge(history, replace(look(75, 0, steps=8), facts=facts), 75, patience)
    assert verdict.state is State.IDLE
    assert "not verified" in verdict.reason


def prefilled_only(t: float, prompts: float, generated: float = 40.0) -> Observation:
    evidence = LaneEvidence(
        "0", {"prompts": prompts, "generated": generated}, 0, 0, prompt_tokens=prompts, generation_tokens=generated
    )
    return Observation(1e9 + t, "answered", facts=Facts("made-up", pins_lanes=True), lanes=(evidence,), incarnation="1")


def test_canaries_that_are_prefilled_and_get_no_token_starve_and_do_not_flood() -> None:
    """vLLM issue 45094 at little traffic: each canary moves the prompt counter, so silence alone never adds up."""
    patience = Settings(interval=5, start_grace=0)
    history, verdict = judge(History(), prefilled_only(0, 100), 0, patience)
    prompts, began, sent, states = 100.0, None, 0, []
    for t in range(5, 1500, 5):
        outcome = None
        if began is not None and t - began >= 30:
            outcome, began = CanaryOutcome("idle", "silent", began, 30.0, lane="0"), None
        seen = replace(
            prefilled_only(t, prompts), canary=outcome, own_canary=None if began is None else CanaryRequest("idle", "0")
        )
        history, verdict = judge(history, seen, t, patience)
        states.append(verdict.state)
        if verdict.wants is not None and began is None:
            began, prompts, sent = float(t), prompts + 1, sent + 1
    assert State.STUCK not in states
    assert states[-1] is State.STARVED
    assert states.index(State.STARVED) * 5 < 700
    assert sent <= 4
    history, verdict = judge(history, prefilled_only(1500, prompts, generated=41), 1500, patience)
    assert verdict.state is State.IDLE


def test_a_first_canary_that_meets_a_cold_compile_is_first_work_and_has_its_grace() -> None:
    """Loaded for 150 s, then 8 minutes of compiling begin with our own canary: silence ends 630 s after the start."""
    patience = Settings(interval=5, start_grace=600)
    history, states = History(), []
    ended = {t: CanaryOutcome("idle", "silent", t - 34.0, 30.0, lane="0") for t in (35, 70)}
    for t in range(0, 800, 5):
        seen = replace(look(t, 0, steps=0), canary=ended.get(t), age=t + 150.0)
        history, verdict = judge(history, seen, t, patience)
        states.append(verdict.state)
    assert states.index(State.STUCK) * 5 == 605


@pytest.mark.parametrize(
    ("result", "status", "words"),
    [
        ("silent", None, "the canary got no answer in 30s"),
        ("silent", 429, "refused with 429 (queue full)"),
        ("http", 429, "refused with 429 (queue full)"),
        ("silent", 503, "answered with 503: no token in the engine's own time limit"),
    ],
)
def test_the_reason_says_what_the_silence_was(result: CanaryResult, status: int | None, words: str) -> None:
    history, began = until_asked(running=1)
    history, _ = in_flight(history, look(began + 10, running=1), began + 10)
    silent = CanaryOutcome("confirm", result, began - 5, 30.0, status=status, lane="0")
    _, verdict = judge(history, replace(look(began + 30, 1), canary=silent), began + 30, PATIENCE)
    assert verdict.state is State.STUCK
    assert words in verdict.reason
