"""From one good look at a lane to its next history: what moved, what work is held, when each clock started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .history import RATE_LOOKS, LaneHistory, Marks, RatePoint
from .observation import LaneEvidence


def changed(before: Mapping[str, float], after: Mapping[str, float]) -> frozenset[str]:
    """Names of counters that are not what they were; a counter that appears counts if it is not zero."""
    return frozenset(name for name, value in after.items() if value != before.get(name, 0.0))


def kv_moved(before: LaneEvidence, after: LaneEvidence) -> bool:
    """KV usage changed while preemptions did not: blocks were filled or freed by work, not by eviction."""
    if before.kv is None or after.kv is None or (before.kv, before.kv_shown) == (after.kv, after.kv_shown):
        return False
    return before.preemptions == after.preemptions


def all_fell(before: LaneEvidence, after: LaneEvidence) -> bool:
    """Every progress counter that had counted anything is smaller now: another process answers."""
    return fell(before.progress, after.progress)


def fell(before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    """Whether every counter that had counted anything, and is still there, is smaller now.

    A single counter that falls among others that do not (a data-parallel wave) is progress, not a restart. Some engines
    make a series only when it is first touched, so a new process may lack some; half a page lacks some too, but what it
    has did not fall.
    """
    there = {name: value for name, value in before.items() if value > 0 and name in after}
    return bool(there) and all(after[name] < value for name, value in there.items())


def begin(evidence: LaneEvidence, t: float, held: float, before: LaneHistory | None = None) -> LaneHistory:
    """Start a lane's observation: at first sight, after a restart, or (with `before`) after a stretch that nobody watched.

    After an unwatched stretch of the same process, what was learnt of the process stays; every clock starts anew.
    """
    marks = Marks(
        moved=t, counted=t, token=t, generated=t, prompted=t, finished=t, preempted=None, shrank=t, ran=t,
        all_deferred=t if _all_deferred(evidence) else None,
    )  # fmt: skip
    work = t if held > 0 else None
    fresh = not evidence.worked if before is None else before.fresh
    lane = LaneHistory(
        last=evidence, at=t, since=t if before is None else before.since, marks=marks, work_since=work, flat_since=work,
        fresh=fresh, first_work=_first_work(fresh, None if before is None else before.first_work, evidence, held, t),
        rate=(_point(evidence, t),),
    )  # fmt: skip
    if before is None:
        return lane
    return replace(lane, verified_at=before.verified_at, slowest_decode=before.slowest_decode)


def watch(lane: LaneHistory, evidence: LaneEvidence, t: float, held: float) -> LaneHistory:
    """Compare one more good look of the same process with the one before."""
    before, marks = lane.last, lane.marks
    counters = changed(before.progress, evidence.progress)
    done = before.finished != evidence.finished
    kv = kv_moved(before, evidence)
    moved = bool(counters) or kv
    token = before.tokens != evidence.tokens if evidence.tokens is not None else bool(counters)
    preempted = (evidence.preemptions or 0) > (before.preemptions or 0)
    marks = Marks(
        moved=t if moved else marks.moved,
        counted=t if counters else marks.counted,
        token=_when(token, t, marks.token),
        generated=_when(before.generation_tokens != evidence.generation_tokens, t, marks.generated),
        prompted=_when(before.prompt_tokens != evidence.prompt_tokens, t, marks.prompted),
        finished=_when(done, t, marks.finished),
        preempted=t if preempted else marks.preempted,
        shrank=_when(not evidence.waiting or evidence.waiting < (before.waiting or 0.0), t, marks.shrank),
        ran=_when(bool(evidence.running), t, marks.ran),
        evictions=0 if token else marks.evictions + preempted,
        all_deferred=t if _all_deferred(evidence) else marks.all_deferred,
        series={**marks.series, **dict.fromkeys([*counters, *["finished"] * done, *["kv_cache_ratio"] * kv], t)},
    )
    arrived = held > 0 and lane.work_since is None
    flat_since = None if held <= 0 else t if moved or arrived else lane.flat_since
    lane = replace(
        lane,
        last=evidence,
        at=t,
        marks=marks,
        compared=True,
        progress_seen=t if moved else lane.progress_seen,
        work_since=None if held <= 0 else t if arrived else lane.work_since,
        flat_since=flat_since,
        first_work=_first_work(lane.fresh, lane.first_work, evidence, held, t),
        slowest_decode=_slowest(lane, evidence, t) if counters else lane.slowest_decode,
        rate=(*lane.rate, _point(evidence, t))[-RATE_LOOKS:],
    )
    if marks.generated == t:
        lane = replace(lane, unanswered=0, unanswered_since=None)
    if evidence.alive is not None and before.alive is not None and evidence.alive != before.alive:
        lane = replace(lane, verified_at=t, silent_idle=0, silent_since=None)
    if moved:
        return replace(lane, confirmation=None, silent_idle=0, silent_since=None)
    if held > 0 or lane.confirmation is None:
        return lane
    # Work that left an engine which gave its canary nothing back: what was proved before that is proved no more.
    silent = lane.confirmation.result == "silent"
    return replace(lane, confirmation=None, verified_at=None if silent else lane.verified_at)


def _when(happened: bool, t: float, otherwise: float) -> float:
    return t if happened else otherwise


def _all_deferred(evidence: LaneEvidence) -> bool:
    """Whether nothing runs and everything that waits waits for another server."""
    waiting, deferred = evidence.waiting, evidence.deferred
    return not evidence.running and bool(waiting) and deferred is not None and deferred >= (waiting or 0.0)


def _first_work(fresh: bool, seen: float | None, evidence: LaneEvidence, held: float, t: float) -> float | None:
    if seen is not None or not fresh:
        return seen
    return t if held > 0 or evidence.worked else None


def _slowest(lane: LaneHistory, evidence: LaneEvidence, t: float) -> float | None:
    """Slowest seconds per decode measured while work was held; meaningful for engines whose steps are decodes."""
    if lane.work_since is None or evidence.steps is None or lane.last.steps is None:
        return lane.slowest_decode
    if lane.confirmation is not None and lane.confirmation.result == "silent":
        return lane.slowest_decode  # a hang that ended is no measure of a decode
    steps = evidence.steps - lane.last.steps
    if steps <= 0:
        return lane.slowest_decode
    since = max(lane.work_since, lane.marks.counted)
    per_step = (t - since) / steps
    return per_step if lane.slowest_decode is None else max(per_step, lane.slowest_decode)


def _point(evidence: LaneEvidence, t: float) -> RatePoint:
    return RatePoint(t, evidence.generation_tokens, evidence.tokens, evidence.steps, evidence.kv)
