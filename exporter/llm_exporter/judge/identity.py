"""Who answers: the same process as before, a new one, or several in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from .history import TRACK_LOOKS, History, Track
from .observation import Observation
from .watch import all_fell, fell


def recognise(history: History, seen: Observation) -> tuple[History, bool]:
    """Tell whether this page is from another process; then the observation begins anew, and a canary is due if it is idle.

    The proof is a start time that changed; without one, all progress counters of a lane that fell. A start time that is
    missing is no error: multi-process servers never have one.
    """
    track = Track(seen.incarnation, {f"{e.lane}/{n}": v for e in seen.lanes for n, v in e.progress.items()})
    tracks = (*history.tracks, track)[-TRACK_LOOKS:]
    known, now = history.incarnation, seen.incarnation
    renewed = known is not None and now is not None and known != now
    fallen = {e.lane for e in seen.lanes if e.lane in history.lanes and all_fell(history.lanes[e.lane].last, e)}
    if renewed or (fallen and fallen >= set(history.lanes)):
        begun = History(
            incarnation=now, ever_answered=True, tracks=tracks, canary_ok=history.canary_ok, cannot=history.cannot,
            blocked_reads=history.blocked_reads,
        )  # fmt: skip
        return begun, True
    lanes = {name: lane for name, lane in history.lanes.items() if name not in fallen}
    return (
        replace(
            history,
            lanes=lanes,
            incarnation=now or known,
            tracks=tracks,
            idle_due=history.idle_due or bool(fallen),
        ),
        bool(fallen),
    )


def several_processes(tracks: Sequence[Track]) -> bool:
    """Two falls and a return to the former track within the last looks: an address shared by several processes."""
    left: Track | None = None
    returned = False
    for before, after in pairwise(tracks):
        returned = returned or (left is not None and _returns(left, before, after))
        if _falls(before, after):
            if returned:
                return True
            left = left or before
    return False


def _falls(before: Track, after: Track) -> bool:
    if before.incarnation is not None and after.incarnation is not None:
        return before.incarnation != after.incarnation
    return fell(before.counters, after.counters)


def _returns(left: Track, before: Track, after: Track) -> bool:
    if left.incarnation is not None:
        return after.incarnation == left.incarnation
    return all(
        after.counters.get(name, 0.0) >= value > before.counters.get(name, 0.0)
        for name, value in left.counters.items()
        if value > 0
    )
