"""How long flat evidence is borne, per engine, version and lane, and why that long."""

from __future__ import annotations

from .history import LaneHistory
from .observation import Facts, Settings
from .verdict import Bound
from .words import duration


def bound_for(facts: Facts, settings: Settings, lane: LaneHistory) -> Bound:
    """The bound of one lane now.

    A sighted source shows a long prefill, so `stuck_after` is enough; a blind one gets `stuck_after_blind`. Where a
    step is a whole decode (llama.cpp), the slowest one measured stretches the bound: a batch of a slow server may take
    minutes, and a canary waits behind it. So does a printed resolution of more than one step (it prints six
    significant digits), since a slow server then looks frozen between two visible values. An engine's own staleness
    window is a floor.
    """
    blind = settings.prefill_blind if settings.prefill_blind is not None else not facts.sighted
    if blind:
        seconds = settings.stuck_after_blind
        why = "prefill_blind is set" if settings.prefill_blind else (facts.sight_why or "a prefill cannot be seen")
        why = f"stuck_after_blind, {why}"
    elif settings.stuck_after is not None:
        seconds, why = settings.stuck_after, "stuck_after"
    else:
        seconds, why = facts.stuck_after, f"stuck_after, the default for {facts.kind}"
    slowest, resolution = lane.slowest_decode, lane.last.resolution
    shows = f"the step counter shows only every {resolution:g}th step"
    if facts.steps_are_decodes and slowest is not None:
        more = resolution * slowest * 2
        seconds += more
        if more >= 1:
            why += f", plus {duration(more)} because " + (f"{shows} and " if resolution > 1 else "")
            why += f"a decode took up to {duration(slowest)}"
    elif resolution > 1:
        seconds *= resolution
        why += f", times {resolution:g} because {shows}"
    if seconds < facts.stuck_floor:
        seconds, why = facts.stuck_floor, f"{facts.floor_why or 'staleness window'} as floor"
    stalled = min(settings.stalled_after, seconds / 2)
    stalled = max(stalled, 2 * settings.interval, facts.stalled_floor)
    return Bound(seconds, stalled, why)


def grace_until(settings: Settings, age: float | None, lane: LaneHistory, now: float) -> float | None:
    """Until when this lane cannot be called stuck because it has only just started, or None.

    Counted from the engine's start and from its first work after it: compiling and graph capture happen there (vLLM issues
    34399 and 16961: 37 minutes and 3 hours), behind gauges that say 0/0 until the first step is done. With an unknown
    start it counts from first sight, while no token was counted.
    """
    if age is None:
        if lane.last.tokens or (lane.last.tokens is None and lane.last.worked):
            return None
        started = lane.since
    else:
        started = now - max(age, 0.0)
    first_work = lane.first_work
    if first_work is None and lane.fresh:
        first_work = lane.silent_since  # the canary that nobody answers is itself this process's first work
    until = max(started, first_work if first_work is not None else started) + settings.start_grace
    return until if until > now else None
