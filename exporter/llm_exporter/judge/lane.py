"""The verdict on one lane, from its history and this look. The heart of the product: read it top down.

The order is the order of strength: asleep on purpose, provably stuck, dead by its own word, starved, stalled, busy, idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .bounds import bound_for, grace_until
from .history import RATE_SECONDS, LaneHistory, RatePoint
from .observation import Facts, Settings, Witness
from .starvation import explains_flatness, starved, unanswered
from .verdict import Bound, Evidence, LaneVerdict, State
from .words import count, duration, rate


@dataclass(frozen=True, slots=True)
class Around:
    """What one lane's verdict needs to know of its target.

    Attributes:
        alone: The target has one lane only.
        others_move: Another lane that holds work moves.
        dead: The engine's own death signal, in words.
        cannot: Why the last canary could confirm nothing.
        asking: Our canary is in flight now.
    """

    facts: Facts
    settings: Settings
    witness: Witness
    age: float | None = None
    alone: bool = True
    others_move: bool = False
    dead: str | None = None
    cannot: str | None = None
    asking: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """A lane's verdict, and whether the last question should be put to it."""

    verdict: LaneVerdict
    ask: bool = False


def judge_lane(lane: LaneHistory, held: float, around: Around, t: float) -> Finding:
    """Judge a lane of which this look has complete evidence.

    Args:
        lane: History that already contains this look.
        held: Work held, our own canary not counted.
        around: What is known of the target.
        t: Monotonic time of the look.
    """
    bound = bound_for(around.facts, around.settings, lane)
    flat = t - lane.flat_since if lane.flat_since is not None else 0.0
    grace = grace_until(around.settings, around.age, lane, t)

    def say(state: State, reason: str, progress: int | None, change: str, *, ask: bool = False) -> Finding:
        silent_idle = lane.silent_idle >= 2 and (state is State.STUCK or (state is State.STALLED and held <= 0))
        since = lane.silent_since if silent_idle else lane.flat_since
        verdict = LaneVerdict(
            lane=lane.last.lane, state=state, reason=reason, progress=progress, held=held,
            stalled_seconds=t - since if since is not None and (flat > bound.stalled_after or silent_idle) else 0.0,
            flat_since=since, last_progress=lane.progress_seen, bound=bound, evidence=evidence_of(lane),
            would_change=change, verified_at=lane.verified_at,
        )  # fmt: skip
        return Finding(verdict, ask)

    work = held_words(lane, held)
    if lane.last.asleep:
        waits = f" ({work})" if held > 0 else ""
        return say(State.SLEEPING, f"{lane.last.asleep}{waits}", None, "it wakes up")

    # A canary never shortens a bound: a first step that compiles, or a lone prefill on a blind source, shows 0/0 for as long
    # as it takes, and both canaries wait behind it (benchmarks/week found four such restarts in twelve weeks).
    silent = t - lane.silent_since if lane.silent_since is not None else 0.0
    if lane.silent_idle >= 2 and grace is None and silent >= bound.seconds:
        reason = (
            f"nothing held, and {lane.silent_idle} canaries in a row got no answer within "
            f"{duration(around.settings.canary_timeout)} while every series is flat "
            f"for {duration(silent)}, bound {duration(bound.seconds)} ({bound.why})"
        )
        if around.witness.power_high:
            reason += f"; the GPU works ({around.witness.power_words})"
            return say(State.STALLED, reason, 0, "the GPU's power drops, any series moves, or a canary is answered")
        return say(State.STUCK, reason, 0, "any series moves, or a canary is answered")

    if held > 0 and flat >= bound.seconds and flat > bound.stalled_after and not explains_flatness(lane, bound, t):
        said = _past_bound(lane, bound, around, flat, grace, work, t)
        if said.state is State.STUCK or not around.dead:
            progress = None if said.state is State.UNKNOWN else 0
            return say(said.state, said.reason, progress, said.would_change, ask=said.ask)

    if around.dead:
        return say(State.FAILED, f"{around.dead}; {work}", None, "it serves again after a restart")

    if held > 0 and (why := starved(lane, bound, around.facts, around.settings, t)) is not None:
        return say(State.STARVED, f"{why}; {work}", 0 if flat > bound.stalled_after else 1, "requests finish again")

    if grace is None and (why := unanswered(lane, around.settings, t)) is not None:
        return say(State.STARVED, f"{why}; {work}", 1, "a token is generated, or a canary is answered")

    if held > 0 and flat > bound.stalled_after:
        becomes = "starved" if explains_flatness(lane, bound, t) else "stuck"
        reason = f"{work}, nothing moved for {duration(flat)}; {becomes} at {duration(bound.seconds)} ({bound.why})"
        if around.asking:
            reason += "; a canary is in flight"
        return say(State.STALLED, reason, 0, "any series moves, or all work leaves")

    if held > 0:
        return say(
            State.BUSY,
            _busy_words(lane, work, flat, t),
            _busy_progress(lane, t),
            f"flat for {duration(bound.stalled_after)}",
        )
    return say(
        State.IDLE,
        _idle_words(lane, around, bound, grace, t),
        1,
        "work arrives, or two canaries in a row get no answer",
    )


class _Said(NamedTuple):
    state: State
    reason: str
    would_change: str
    ask: bool = False


def _past_bound(
    lane: LaneHistory, bound: Bound, around: Around, flat: float, grace: float | None, work: str, t: float
) -> _Said:
    """Held work, flat past its bound: may it be called stuck, and if not yet, what is missing?"""
    facts, known = around.facts, lane.confirmation
    said = f"{work}, nothing moved for {duration(flat)}, bound {duration(bound.seconds)} ({bound.why})"
    if around.witness.cpu_high:
        said += "; the container's CPU is busy (compiling, or a loop)"
    if around.witness.hardware:
        said += f"; {around.witness.hardware}"

    def stuck(why: str) -> _Said:
        return _Said(State.STUCK, f"{said}; {why}", "any series moves")

    def stalled(why: str, change: str, *, ask: bool = False) -> _Said:
        return _Said(State.STALLED, f"{said}; {why}", change, ask)

    if grace is not None:
        return stalled(f"in its start grace for {duration(grace - t)}", "the grace ends")
    if around.witness.power_high:
        return stalled(f"the GPU works ({around.witness.power_words})", "the GPU's power drops")
    if not around.settings.confirm:
        return stuck("not confirmed by a canary (confirm is off)")
    if known is not None and known.result == "silent":
        return stuck(known.words)
    if known is not None:
        return _Said(
            State.UNKNOWN,
            f"metrics frozen while the engine answers: {said}, but {known.words}",
            "the page moves; asked again after another bound",
            ask=t - known.ended >= bound.seconds and not around.asking,
        )
    if around.others_move and not facts.pins_lanes:
        if flat >= 2 * bound.seconds:
            return stuck("another lane moves, and no canary can be sent to this lane alone")
        return stalled("no canary can be sent to this lane alone, stuck at twice the bound", "this lane moves")
    if facts.canary is not None:
        return stalled(f"cannot confirm: {facts.canary}", "any series moves")
    if around.asking:
        return stalled("a canary is in flight", "the canary's answer")
    if around.cannot is not None:
        return stalled(f"cannot confirm: {around.cannot}", "a canary that can be answered", ask=True)
    other = "" if around.alone or facts.pins_lanes else ", which another lane may answer"
    return stalled(f"asking the engine with one tiny request{other}", "the canary's answer", ask=True)


def evidence_of(lane: LaneHistory) -> tuple[Evidence, ...]:
    """Every series that the verdict leans on, with the time of its last movement."""
    last, marks = lane.last, lane.marks
    rows = [Evidence(name, value, marks.series.get(name)) for name, value in last.progress.items()]
    for name, value, at in (
        ("running", last.running, None),
        ("waiting", last.waiting, None),
        ("deferred", last.deferred, None),
        ("kv_cache_ratio", last.kv, marks.series.get("kv_cache_ratio")),
        ("preemptions", last.preemptions, marks.preempted),
        ("finished", last.finished, marks.series.get("finished")),
    ):
        if value is not None:
            rows.append(Evidence(name, value, at))
    return tuple(rows)


def held_words(lane: LaneHistory, held: float) -> str:
    """``12 running, 40 waiting``."""
    if held <= 0:
        return "nothing held"
    words = f"{count(lane.last.running or 0)} running, {count(lane.last.waiting or 0)} waiting"
    return words + (f" ({count(lane.last.deferred)} deferred)" if lane.last.deferred else "")


def _busy_progress(lane: LaneHistory, t: float) -> int | None:
    just_seen = lane.work_since == t and lane.marks.moved < t
    return None if not lane.compared or just_seen else 1


def _busy_words(lane: LaneHistory, work: str, flat: float, t: float) -> str:
    if not lane.compared:
        return f"{work}; first look, progress not known yet; no request sent"
    moving = rate(_recent(lane, t))
    if flat > 0 and not moving:
        return f"{work}, nothing moved for {duration(flat)} yet; no request sent"
    return f"{work}, {moving}; no request sent" if moving else f"{work}; no request sent"


def _recent(lane: LaneHistory, t: float) -> tuple[RatePoint, ...]:
    """The looks of the last `RATE_SECONDS` in which this work was held, and two at the least if there are two."""
    working = tuple(point for point in lane.rate if lane.work_since is not None and point.t >= lane.work_since)
    recent = tuple(point for point in working if t - point.t <= RATE_SECONDS)
    return recent if len(recent) > 1 else working[-2:]


def _idle_words(lane: LaneHistory, around: Around, bound: Bound, grace: float | None, t: float) -> str:
    if lane.silent_idle == 1:
        return (
            "nothing held; not verified: a canary got no answer and nothing moved; asked once more at the bound of "
            f"{duration(bound.seconds)} ({bound.why})"
        )
    if lane.silent_idle >= 2 and grace is not None:
        return f"nothing held; not verified: canaries get no answer, in its start grace for {duration(grace - t)}"
    if lane.silent_idle >= 2:
        return (
            f"nothing held; not verified: canaries get no answer for {duration(t - (lane.silent_since or t))}, "
            f"stuck at {duration(bound.seconds)} ({bound.why})"
        )
    if lane.verified_at is not None:
        return f"nothing held; verified {duration(max(0.0, t - lane.verified_at))} ago by an answer of the engine"
    why = (
        around.facts.idle_canary or around.facts.canary or (None if around.settings.idle_canary else "idle canaries are off")
    )
    why = why or (f"the canary could not be used: {around.cannot}" if around.cannot else None)
    because = f"; {why}" if why else ""
    return f"nothing held; not verified (metrics alone cannot tell it from an engine that hung while idle){because}"
