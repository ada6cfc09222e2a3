"""Who answers: one process or another, several, none yet, or one that died."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from exporter.watched import PATIENCE, Watched
from llm_exporter.judge import (
    CanaryOutcome,
    LaneEvidence,
    LoopEvidence,
    State,
    Verdict,
    Witness,
)


def several(*tracks: tuple[str | None, Mapping[str, float]]) -> bool:
    """Whether these answers in turn are said to be of several processes."""
    target = Watched()
    for incarnation, counters in tracks:
        verdict = target.see(LaneEvidence("0", counters, 1.0, 0.0), incarnation=incarnation)
    return verdict.reason.startswith("several processes")


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
