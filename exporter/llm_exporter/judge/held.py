"""Held work: the requests that somebody waits for, our own canary not counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .history import History
from .observation import LaneEvidence, Observation


def held_work(evidence: LaneEvidence) -> float | None:
    """Requests that the page shows, or None if it cannot tell.

    Absent gauges count as zero only on a server that has not made its first step: the step series is there and every
    progress counter is zero. Everywhere else absence is ignorance (a renamed metric, half a page).
    """
    running, waiting = evidence.running, evidence.waiting
    if running is None or waiting is None:
        if not evidence.progress or any(evidence.progress.values()):
            return None
        running, waiting = running or 0.0, waiting or 0.0
    return max(0.0, running) + max(0.0, waiting)


def before_canary(history: History, seen: Observation) -> History:
    """Note what the page showed when our canary was sent: what it shows beyond that may be the canary."""
    if seen.own_canary is None:
        return history if history.before_canary is None else replace(history, before_canary=None)
    if history.before_canary is not None:
        return history
    return replace(history, before_canary={name: _shown(lane.last) for name, lane in history.lanes.items()})


def _shown(evidence: LaneEvidence) -> float:
    return (evidence.running or 0.0) + (evidence.waiting or 0.0)


def held_by_lane(seen: Observation, before: Mapping[str, float]) -> Mapping[str, float | None]:
    """Held work per lane; our own canary is taken off the lane that it is pinned to, else off one that holds more now.

    A hung engine's gauges do not take the canary in; taking it off them would call the one request that hangs idle.
    """
    held = {lane.lane: held_work(lane) for lane in seen.lanes}
    if seen.own_canary is None:
        return held
    for lane in seen.lanes:
        more = _shown(lane) - before.get(lane.lane, 0.0)
        if seen.own_canary.lane in (None, lane.lane) and more > 0 and held[lane.lane]:
            held[lane.lane] = max(0.0, (held[lane.lane] or 0.0) - min(1.0, more))
            break
    return held
