"""What a look, a canary or a fault of our own makes of a target's snapshot: pure functions from one to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from llm_exporter import checks
from llm_exporter.judge import CanaryOutcome, State, Verdict
from llm_exporter.pipeline import Mind, Seen
from llm_exporter.snapshot import Change, Gpu, SentCanary, Snapshot, outdated
from llm_exporter.witnesses.gpu import GpuReading

TIMELINE = 100
CANARIES_KEPT = 20
LONGEST_NAME = 300


def after_look(
    before: Snapshot,
    seen: Seen,
    mind: Mind,
    gpus: Sequence[GpuReading],
    interval: float,
    seconds: float,
    static_seconds: float | None,
) -> Snapshot:
    """The snapshot after a look that took `seconds`."""
    verdict, look, observation = seen.verdict, seen.look, seen.observation
    health = look.health
    given = before.target.options.prefill_blind
    missing = dict.fromkeys((*seen.reading.missing, *(name for lane in seen.reading.lanes for name in lane.missing)))
    after = replace(
        before,
        interval=interval,
        kind=mind.engine.kind if mind.engine is not None else "",
        version=_short(mind.known.version),
        model=_short(mind.known.model or seen.reading.model),
        prefill_blind=not observation.facts.sighted if given is None else given,
        looked=look.t,
        looked_at=look.unix,
        seconds=seconds,
        offset=look.unix - look.t,
        up=observation.reach == "answered" and look.metrics.kind is None and look.metrics.status == 200,
        lanes=observation.lanes,
        native_status=(health.status or 0) if health is not None else 0,
        native_seconds=health.seconds if health is not None and health.status is not None else None,
        static_seconds=static_seconds,
        loop_lag=observation.loop.lag if observation.loop is not None else None,
        started_at=seen.reading.started,
        incarnation=observation.incarnation or before.incarnation,
        restarts=before.restarts + int(verdict.restarted),
        restarted_at=look.unix if verdict.restarted else before.restarted_at,
        unserved_at=look.unix if observation.reach in ("refused", "reset", "loading") else before.unserved_at,
        first_token=seen.reading.first_token,
        missing=tuple(missing),
        gpu=_gpu(gpus),
        errors=_counted(before.errors, _failure(seen)),
    )
    after = _changed(after, verdict, look.unix, first=before.looked is None)
    return replace(after, checks=checks.of(after, before.checks))


def after_canary(before: Snapshot, outcome: CanaryOutcome) -> Snapshot:
    """The snapshot after a canary of ours ended."""
    entry = SentCanary(
        unix=outcome.began + before.offset,
        kind=outcome.kind or "",
        lane=outcome.lane,
        result=outcome.result,
        seconds=outcome.seconds,
        status=outcome.status,
        words=outcome.words,
    )
    return replace(
        before,
        canaries=_counted(before.canaries, outcome.result),
        canary_log=(*before.canary_log, entry)[-CANARIES_KEPT:],
    )


def after_fault(before: Snapshot, error: Exception, t: float, unix: float) -> Snapshot:
    """The snapshot after our own code failed at a look: nothing is known, and nothing old is shown."""
    words = f"the exporter itself failed at this look ({type(error).__name__}: {error}); please report it"
    after = replace(
        outdated(before),
        verdict=before.verdict,
        looked=t,
        looked_at=unix,
        offset=unix - t,
        errors=_counted(before.errors, "internal"),
    )
    return _changed(after, Verdict(State.UNKNOWN, words[:500]), unix, first=before.looked is None)


def _changed(snapshot: Snapshot, verdict: Verdict, unix: float, *, first: bool) -> Snapshot:
    """The snapshot with a new verdict; a new state opens an entry of the timeline and is counted, the first is not."""
    if not first and snapshot.verdict.state is verdict.state:
        return replace(snapshot, verdict=verdict)
    return replace(
        snapshot,
        verdict=verdict,
        since=unix,
        timeline=(*snapshot.timeline, Change(unix, verdict.state, verdict.reason))[-TIMELINE:],
        transitions=snapshot.transitions if first else _counted(snapshot.transitions, verdict.state.value),
    )


def _short(name: str | None) -> str | None:
    """A name as a label: what a server calls itself must not fill our pages."""
    return None if name is None else name[:LONGEST_NAME]


def _gpu(gpus: Sequence[GpuReading]) -> Gpu | None:
    """The target's GPUs as one: the fullest memory, the mean utilisation, the power of all."""
    if not gpus:
        return None
    memory = [gpu.memory for gpu in gpus if gpu.memory is not None]
    used = [gpu.utilization for gpu in gpus if gpu.utilization is not None]
    watts = [gpu.watts for gpu in gpus if gpu.watts is not None]
    return Gpu(max(memory, default=None), sum(used) / len(used) if used else None, sum(watts) if watts else None)


def _counted(counts: Mapping[str, int], key: str | None) -> Mapping[str, int]:
    return counts if key is None else {**counts, key: counts.get(key, 0) + 1}


def _failure(seen: Seen) -> str | None:
    """Why a look gave nothing to judge, as the metric's reason; None if it did, or the server is loading."""
    page, reach = seen.look.metrics, seen.observation.reach
    if reach == "loading":
        return None
    if page.kind is not None:
        return page.kind
    if page.status != 200:
        return "http"
    return None if seen.observation.lanes else "unreadable"
