"""An engine that the operator describes in exporter.yml, judged by the same judge."""

from __future__ import annotations

from collections.abc import Sequence

from ..exposition import Samples
from ..judge.model import Facts
from .base import CanaryPlan, Engine, Known, Look, Reading, one_token
from .lanes import LaneTable, Pick, read_lanes


def described(
    kind: str,
    *,
    progress: Sequence[str],
    running: str,
    waiting: Sequence[str],
    lane_labels: Sequence[str] = (),
    kv: str | None = None,
    finished: str | None = None,
    generation_tokens: str | None = None,
    blind: bool = True,
    metrics_path: str = "/metrics",
    health_path: str | None = None,
    canary_path: str | None = None,
) -> Engine:
    """An adapter from the names of an engine's series.

    It counts as blind unless the operator says that its progress series move during a long prefill: a wrong "sighted"
    restarts a healthy server, a wrong "blind" only waits longer.
    """
    table = LaneTable(
        labels=tuple(lane_labels),
        progress=tuple(Pick((name,)) for name in progress),
        running=Pick((running,)),
        waiting=tuple(Pick((name,)) for name in waiting),
        kv=Pick((kv,), how="max") if kv else None,
        finished=Pick((finished,)) if finished else None,
        generation_tokens=Pick((generation_tokens,)) if generation_tokens else None,
        steps=Pick((progress[0],)),
    )

    def read(samples: Samples, look: Look, known: Known) -> Reading:
        start = samples.total("process_start_time_seconds")
        return Reading(
            lanes=read_lanes(samples, table), incarnation=None if start is None else f"{start:.3f}", started=start
        )

    def facts(samples: Samples, known: Known) -> Facts:
        why = "the configuration calls it blind" if blind else "the configuration calls it sighted"
        return Facts(kind, known.version, not blind, why, canary=None if canary_path else "no canary_path is configured")

    return Engine(
        kind=kind,
        series=(*table.series(), "process_start_time_seconds"),
        recognises=lambda samples: any(samples.has(name) for name in progress),
        read=read,
        facts=facts,
        metrics_path=metrics_path,
        health_path=health_path,
        once=(),
        canary=CanaryPlan(path=canary_path, body=one_token) if canary_path else None,
        tier=2,
    )
