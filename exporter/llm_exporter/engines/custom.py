"""An engine that the operator describes in exporter.yml, judged by the same judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..exposition import Samples
from ..judge import Facts
from .base import CanaryPlan, Engine, Known, Look, Reading, one_word
from .lanes import LaneTable, Pick, read_lanes
from .shared import PROCESS_START, first_model, process_start


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


def _question(path: str) -> Callable[[str], Mapping[str, Any]]:
    """One word for one token, as the path wants it."""
    if not path.endswith("/chat/completions"):
        return one_word
    chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "temperature": 0, "stream": False}
    return lambda model: {"model": model, **chat}


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

    path = described.canary_path
    return Engine(
        kind=described.kind,
        series=(*table.series(), PROCESS_START),
        recognises=lambda samples: any(samples.has(name) for name in described.progress),
        read=read,
        facts=facts,
        metrics_path=described.metrics_path,
        health_path=described.health_path,
        once=("/v1/models",) if path else (),
        about=lambda pages: Known(model=first_model(pages.get("/v1/models"))),
        canary=CanaryPlan(path=path, body=_question(path)) if path else None,
        tier=2,
    )
