"""Triton Inference Server, with or without the TensorRT-LLM backend. Not run by us.

Facts: the metrics are on port 8002, which takes no requests: no canary.
``nv_trt_llm_general_metrics{iteration_counter}`` counts engine steps (a gauge that only grows; its ``timestamp`` only tells
when the statistics were taken). Without that backend only ended inferences are counted, and one long inference is legal
(server issue 7649): blind. ``nv_inference_pending_request_count`` does not contain requests that execute.
"""

from __future__ import annotations

from dataclasses import replace

from ..exposition import Samples
from ..judge import Facts
from .base import Engine, Known, Look, Reading
from .lanes import LaneTable, Pick, pick, read_lanes

GENERAL, REQUESTS = "nv_trt_llm_general_metrics", "nv_trt_llm_request_metrics"

TABLE = LaneTable(
    labels=("model",),
    progress=(
        Pick((GENERAL,), {"general_type": "iteration_counter"}),
        Pick(("nv_inference_exec_count",)),
        Pick(("nv_inference_count",)),
        Pick(("nv_inference_request_success",)),
        Pick(("nv_inference_request_failure",)),
    ),
    running=Pick((REQUESTS,), {"request_type": "scheduled"}),
    waiting=(),
    optional_waiting=(Pick((REQUESTS,), {"request_type": "waiting"}), Pick(("nv_inference_pending_request_count",))),
    kv=Pick(("nv_trt_llm_kv_cache_block_metrics",), {"kv_cache_block_type": "fraction"}, how="max"),
    finished=Pick(("nv_inference_request_success",)),
    steps=Pick((GENERAL,), {"general_type": "iteration_counter"}),
    absent_is_zero=True,
)


ACTIVE = Pick((REQUESTS,), {"request_type": "active"})
"""Requests that the batch manager holds, also those that its last iteration did not schedule."""


def recognises(samples: Samples) -> bool:
    """Its inference or request series."""
    return any(samples.has(name) for name in ("nv_inference_count", "nv_inference_exec_count", REQUESTS))


def read(samples: Samples, look: Look, known: Known) -> Reading:
    """One lane per model; models are independent of each other."""
    active = pick(samples, ACTIVE, TABLE.labels)
    return Reading(
        lanes=tuple(
            replace(
                lane,
                running=max(lane.running or 0.0, active.get(lane.lane, ("", 0.0))[1]),
                missing=tuple(m for m in lane.missing if m == GENERAL and not lane.progress),
            )
            for lane in read_lanes(samples, TABLE)
        )
    )


def facts(samples: Samples, known: Known) -> Facts:
    """Sighted only with the TensorRT-LLM backend's step counter."""
    sighted = samples.has(GENERAL)
    return Facts(
        kind="triton",
        version=known.version,
        sighted=sighted,
        sight_why="engine iterations are counted" if sighted else "only completed inferences are counted",
        canary="Triton's metrics port takes no inference requests",
    )


ENGINE = Engine(
    kind="triton",
    series=TABLE.series(),
    recognises=recognises,
    read=read,
    facts=facts,
    health_path=None,
    once=(),
    tier=2,
)
