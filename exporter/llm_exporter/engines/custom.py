"""An engine that the operator describes in exporter.yml, judged by the same judge."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..exposition import Samples
from ..judge import Facts
from .base import CanaryPlan, Engine, Known, Look, Reading, one_token
from .lanes import LaneTable, Pick, read_lanes
from .shared import PROCESS_START, process_start


@dataclass(frozen=True, slots=True)
class Described:
    """``engines:`` an engine's series by name. An engine without a queue of its own has no `waiting`.

    It counts as blind unless the operator says that its progress series move during a long prefill: a wrong "sighted"
    restarts a healthy server, a wrong "blind" only waits longer.
    """

    kind: str
    progress: tuple[str, ...]
    running: str
    waiting: tuple[str, ...]
    lane_labels: tuple[str, ...] = ()
    kv: str | None = None
    finished: str | None = None
    generation_tokens: str | None = None
    blind: bool = True
    metrics_path: str = "/metrics"
    health_path: str | None = None
    canary_path: str | None = None


def adapter(described: Described) -> Engine:
    """The adapter of an engine that the operator described."""
    table = LaneTable(
        labels=described.lane_labels,
        progress=tuple(Pick((name,)) for name in described.progress),
        running=Pick((described.running,)),
        waiting=tuple(Pick((name,)) for name in described.waiting),
        kv=Pick((described.kv,), how="max") if described.kv else None,
        finished=Pick((described.finished,)) if described.finished else None,
        generation_tokens=Pick((described.generation_tokens,)) if described.generation_tokens else None,
        steps=Pick((described.progress[0],)),
    )

    def read(samples: Samples, look: Look, known: Known) -> Reading:
        incarnation, started = process_start(samples)
        lanes = read_lanes(samples, table)
        if not described.waiting:
            lanes = tuple(replace(lane, waiting=0.0) for lane in lanes)
        return Reading(lanes=lanes, incarnation=incarnation, started=started)

    def facts(samples: Samples, known: Known) -> Facts:
        why = "the configuration calls it blind" if described.blind else "the configuration calls it sighted"
        cannot = None if described.canary_path else "no canary_path is configured"
        return Facts(described.kind, known.version, not described.blind, why, canary=cannot)

    return Engine(
        kind=described.kind,
        series=(*table.series(), PROCESS_START),
        recognises=lambda samples: any(samples.has(name) for name in described.progress),
        read=read,
        facts=facts,
        metrics_path=described.metrics_path,
        health_path=described.health_path,
        once=(),
        canary=CanaryPlan(path=described.canary_path, body=one_token) if described.canary_path else None,
        tier=2,
    )
