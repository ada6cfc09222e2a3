"""What HTTP tells beside the metrics: the engine's own word that it is dead, failed answers, requests that stay open."""

from __future__ import annotations

from dataclasses import replace

from .history import History
from .lane import Finding
from .observation import Observation
from .verdict import State
from .words import count, duration

ERRORS_WITHOUT_ONE_SUCCESS = 3
"""Inference answers 5xx in a row from which on a server without one success is dead."""


def count_answers(history: History, seen: Observation, t: float) -> History:
    """Follow inference answers: errors count from the last success on."""
    if seen.answers_failed is None and history.failed is not None:
        return history
    # No answer of either kind yet is zero: the first error makes the series.
    ok, failed = seen.answers_ok or 0.0, seen.answers_failed or 0.0
    if history.failed is None or failed < history.failed or ok != history.ok:
        return replace(history, ok=ok, failed=failed, errors=0.0, errors_since=None)
    new = failed - history.failed
    return replace(
        history,
        failed=failed,
        errors=history.errors + new,
        errors_since=history.errors_since or (t if new else None),
    )


def death(history: History, seen: Observation, t: float) -> str | None:
    """Why the engine is dead, in words: its own signal, or nothing but 5xx answers since the last success and movement."""
    if seen.death and (history.served or seen.died_loading):
        return seen.death
    moved = max((lane.progress_seen or 0.0 for lane in history.lanes.values()), default=0.0)
    if history.errors >= ERRORS_WITHOUT_ONE_SUCCESS and history.errors_since is not None and moved < history.errors_since:
        return f"only 5xx answers: {count(history.errors)} in {duration(t - history.errors_since)} and not one success"
    return None


def open_requests(
    history: History, seen: Observation, findings: tuple[Finding, ...], t: float
) -> tuple[History, tuple[Finding, ...]]:
    """Requests that are open at HTTP level while the engine claims to hold nothing: an idle engine has none.

    They may make an ``idle`` lane ``stalled`` (llama-server that swallows a request: orbi issue 233), never more. In time
    before that a canary is due: it may tell that they only count clients that left (`Engine.less_abandoned`).
    """
    still = all(lane.marks.moved < t or not lane.compared for lane in history.lanes.values())
    in_flight = (seen.witness.in_flight or 0.0) - (1.0 if seen.own_canary is not None else 0.0)
    idle = all(f.verdict.state is State.IDLE for f in findings)
    if in_flight < 1 or not idle or not still:
        return replace(history, open_since=None), findings
    since = t if history.open_since is None else history.open_since
    history = replace(history, open_since=since)
    bound = findings[0].verdict.bound
    if bound is None:
        return history, findings
    if t - since >= bound.seconds / 2 and (history.asked_at is None or history.asked_at < since):
        history = replace(history, idle_due=True)
    if t - since < bound.seconds:
        return history, findings
    said = (
        f"nothing held, it says, yet {count(in_flight)} HTTP requests are open for {duration(t - since)} and nothing moves"
    )
    return history, tuple(
        Finding(
            replace(f.verdict, state=State.STALLED, reason=said, progress=0, flat_since=since, stalled_seconds=t - since)
        )
        for f in findings
    )
