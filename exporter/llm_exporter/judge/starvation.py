"""The engine moves, yet users get nothing: not admitted, not finished, evicted over and over."""

from __future__ import annotations

from .history import LaneHistory
from .observation import Facts, Settings
from .verdict import Bound
from .words import count, duration


def starved(lane: LaneHistory, bound: Bound, facts: Facts, settings: Settings, t: float) -> str | None:
    """Why this lane is starved, or None.

    Two clocks: `bound`, where no token is counted at all while preemptions rise or everything waits for another server
    (vllm-ascend issue 16315, vLLM issue 35943); and ``starved_after``, where counters move but work does not get through
    (vLLM issues 53130 and 45094).
    """
    said = _not_served(lane, bound, t)
    # What moves once in a while is starved between two movements too; what never moved all the time is stalled.
    if said is None and t - lane.marks.moved < settings.starved_after:
        said = _nothing_gets_through(lane, facts, settings.starved_after, t)
    return said


def explains_flatness(lane: LaneHistory, bound: Bound, t: float) -> bool:
    """Whether the scheduler is seen to live (it preempts) or to wait for others: then flat evidence is not a hang."""
    return _deferred(lane, bound, t) or _preempting(lane, bound, t)


def _deferred(lane: LaneHistory, bound: Bound, t: float) -> bool:
    """All that waits waits for another server; one that has only just come is not yet told apart."""
    since = lane.marks.all_deferred
    return since is not None and t - since < bound.stalled_after


def _preempting(lane: LaneHistory, bound: Bound, t: float) -> bool:
    """Evicted more than once since the last token: a single eviction is work that begins again (a long prompt)."""
    marks = lane.marks
    return marks.evictions > 1 and marks.preempted is not None and t - marks.preempted <= bound.seconds


def _not_served(lane: LaneHistory, bound: Bound, t: float) -> str | None:
    marks, work = lane.marks, _work(lane, t)
    tokenless = t - max(marks.token, work)
    if tokenless >= bound.seconds and _preempting(lane, bound, t):
        return f"preemption loop: preemptions rise while no token was counted for {duration(tokenless)}"
    flat = t - max(marks.counted, work)
    if flat >= bound.seconds and _deferred(lane, bound, t):
        return (
            f"all {count(lane.last.waiting or 0)} waiting requests are deferred and no token was counted for "
            f"{duration(flat)}; the cause may be another server (prefill, remote KV)"
        )
    return None


def _work(lane: LaneHistory, t: float) -> float:
    """Since when work is held."""
    return t if lane.work_since is None else lane.work_since


def _nothing_gets_through(lane: LaneHistory, facts: Facts, window: float, t: float) -> str | None:
    marks, last = lane.marks, lane.last
    work = _work(lane, t)
    unfinished = last.finished is not None and t - marks.finished >= window
    if unfinished and t - max(marks.shrank, work) >= window:
        return (
            f"{count(last.waiting or 0)} waiting, never fewer, and nothing finished for "
            f"{duration(t - max(marks.shrank, marks.finished))}"
        )
    if (
        last.generation_tokens is not None
        and not facts.tokens_at_finish
        and t - max(marks.generated, work) >= window
        and t - marks.prompted < window
        and (unfinished or last.finished is None)
    ):
        return f"prompt tokens move but none was generated for {duration(t - marks.generated)}"
    if t - max(marks.ran, work) >= window and t - max(marks.counted, work) >= window:
        return f"only the KV cache moves, nothing runs, for {duration(t - max(marks.ran, work))}"
    return None


def unanswered(lane: LaneHistory, settings: Settings, t: float) -> str | None:
    """Canaries are prefilled and get no token, and nobody else got one: decode is dead, at whatever traffic.

    The clocks of `starved` need work that is held all the time; here clients give up before the window ends.
    """
    if lane.unanswered < 2 or lane.unanswered_since is None or t - lane.unanswered_since < settings.starved_after:
        return None
    return (
        f"no token was generated for {duration(t - lane.unanswered_since)}, {lane.unanswered} canaries in a row got none, "
        "yet something moves"
    )
