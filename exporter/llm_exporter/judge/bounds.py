"""How long flat evidence is borne, per engine, version and lane, and why that long."""

from __future__ import annotations

from .history import LaneHistory
from .model import Bound, Facts, LaneEvidence, Settings
from .words import duration


def bound_for(facts: Facts, settings: Settings, evidence: LaneEvidence, lane: LaneHistory | None) -> Bound:
    """The bound of one lane now.

    A sighted source shows a long prefill, so `stuck_after` is enough; a blind one gets `stuck_after_blind`. A printed
    resolution of more than one step (llama.cpp prints six significant digits) stretches the bound, since a slow server then
    looks frozen between two visible values. An engine's own staleness window is a floor.
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
    if evidence.resolution > 1:
        slowest = lane.slowest_decode if lane else None
        if slowest is None:
            seconds *= evidence.resolution
            why += (
                f", times {evidence.resolution:g} because the step counter shows only every {evidence.resolution:g}th step"
            )
        else:
            seconds += evidence.resolution * slowest * 2
            why += (
                f", plus {duration(evidence.resolution * slowest * 2)} because the step counter shows only every "
                f"{evidence.resolution:g}th step and a step took up to {slowest:.2g} s"
            )
    if seconds < facts.stuck_floor:
        seconds, why = facts.stuck_floor, f"{facts.floor_why or 'staleness window'} as floor"
    stalled = min(settings.stalled_after, seconds / 2)
    stalled = max(stalled, 2 * settings.interval, facts.stalled_floor)
    return Bound(seconds, stalled, why)


def grace_until(settings: Settings, age: float | None, lane: LaneHistory, now: float) -> float | None:
    """Until when this lane cannot be called stuck because it has only just started, or None.

    Counted from the engine's start and from its first work after it: compiling and graph capture happen there (vLLM issues
    34399 and 16961: 37 minutes and 3 hours). With an unknown start it counts from first sight, while no token was counted.
    """
    if settings.start_grace <= 0:
        return None
    if age is None:
        if lane.last.tokens or (lane.last.tokens is None and lane.last.worked) or not lane.fresh:
            return None
        started = lane.since
    else:
        started = now - max(age, 0.0)
    until = max(started, lane.first_work if lane.first_work is not None else started) + settings.start_grace
    return until if until > now else None
