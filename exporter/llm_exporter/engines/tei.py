"""Hugging Face Text Embeddings Inference.

Facts: there is no running gauge; requests in flight are ``te_request_count`` minus successes and failures. A batch formed
raises ``te_batch_next_size_count``. A client that leaves ends its request without a success or a failure, so it stays in
flight until an answered canary tells that nothing waits any more. ``/health`` runs in the same blocking backend thread
as the work, so it is no proof.
"""

from __future__ import annotations

from dataclasses import replace

from ..exposition import Samples
from ..judge import Facts, LaneEvidence
from .base import CanaryPlan, Engine, Known, Look, Reading
from .lanes import LaneTable, Pick, read_lanes
from .shared import about_by_info

ASKED = ("te_request_count", "te_request_success", "te_request_failure")

TABLE = LaneTable(
    labels=(),
    progress=(
        Pick(("te_batch_next_size_count",)),
        Pick(("te_embed_success",)),
        Pick(("te_predict_success",)),
    ),
    running=None,
    waiting=(Pick(("te_queue_size",)),),
    finished=Pick(("te_request_success",)),
    steps=Pick(("te_batch_next_size_count",)),
    absent_is_zero=True,
)


def recognises(samples: Samples) -> bool:
    """Any of its series."""
    return any(name.startswith("te_") for name in samples.names())


def read(samples: Samples, look: Look, known: Known) -> Reading:
    """One lane; what is in flight and not queued is running."""
    lanes = read_lanes(samples, TABLE) or ((LaneEvidence("0"),) if recognises(samples) else ())
    in_flight = max(
        0.0, (samples.total(ASKED[0]) or 0.0) - (samples.total(ASKED[1]) or 0.0) - (samples.total(ASKED[2]) or 0.0)
    )
    return Reading(
        lanes=tuple(
            replace(
                lane,
                progress=TABLE.untouched() | dict(lane.progress),
                waiting=lane.waiting or 0.0,
                running=max(0.0, in_flight - (lane.waiting or 0.0)),
                missing=(),
            )
            for lane in lanes
        ),
        in_flight=in_flight if samples.has(ASKED[0]) else None,
    )


def less_abandoned(reading: Reading, abandoned: float) -> Reading:
    """What is open and running, without the requests whose client left."""
    lanes = tuple(replace(lane, running=max(0.0, (lane.running or 0.0) - abandoned)) for lane in reading.lanes)
    return replace(reading, lanes=lanes, in_flight=max(0.0, (reading.in_flight or 0.0) - abandoned))


def facts(samples: Samples, known: Known) -> Facts:
    """Batches are short; every one is counted."""
    return Facts(kind="tei", version=known.version, sighted=True, sight_why="every batch is counted")


ENGINE = Engine(
    kind="tei",
    series=(*TABLE.series(), *ASKED),
    recognises=recognises,
    read=read,
    facts=facts,
    health_is_work=True,
    less_abandoned=less_abandoned,
    once=("/info",),
    about=about_by_info,
    canary=CanaryPlan(
        path="/embed",
        names_model=False,
        body=lambda model: {"inputs": "a"},
        answered=lambda status, body: status == 200 and isinstance(body, list),
    ),
)
