"""Hugging Face Text Generation Inference 2.x and 3.x (its v2 and v3 backends).

Facts (``backends/v3/src/backend.rs``): ``tgi_batch_inference_count{method}`` rises before each forward, ``_success``
after it, so their difference is the forward in flight. ``tgi_batch_current_size`` is set only after the first
prefill. Series do not exist before they are first touched: absent is zero. TGI's other backends (trtllm, llamacpp) show
none of them, and are not judged. A client that leaves ends its request without a success or a failure.
``/health`` waits behind the current forward and is no proof (issue 3241).
"""

from __future__ import annotations

from dataclasses import replace

from ..exposition import Samples
from ..judge import Facts, LaneEvidence
from .base import CanaryPlan, Engine, Known, Look, Reading
from .lanes import LaneTable, Pick, read_lanes
from .shared import about_by_info

COUNT, SUCCESS, FAILURE = (f"tgi_batch_inference_{what}" for what in ("count", "success", "failure"))
ASKED = ("tgi_request_count", "tgi_request_success", "tgi_request_failure")

TABLE = LaneTable(
    labels=(),
    progress=(
        *(Pick((name,), {"method": method}) for name in (COUNT, SUCCESS) for method in ("prefill", "decode")),
        Pick(("tgi_request_generated_tokens_sum",)),
    ),
    running=Pick(("tgi_batch_current_size",)),
    waiting=(Pick(("tgi_queue_size",)),),
    prompt_tokens=Pick(("tgi_request_input_length_sum",)),
    generation_tokens=Pick(("tgi_request_generated_tokens_sum",)),
    finished=Pick(("tgi_request_success",)),
    steps=Pick((COUNT,)),
    absent_is_zero=True,
)


def recognises(samples: Samples) -> bool:
    """Any of its series."""
    return any(name.startswith("tgi_") for name in samples.names())


def _another_backend(samples: Samples) -> bool:
    """Requests succeeded, but neither a queue nor a batch was touched: v2 and v3 show both with their first request."""
    own = any(name.startswith(("tgi_batch_", "tgi_queue_")) for name in samples.names())
    return (samples.total(ASKED[1]) or 0.0) > 0 and not own


def less_abandoned(reading: Reading, abandoned: float) -> Reading:
    """The open requests without those whose client left."""
    return replace(reading, in_flight=max(0.0, (reading.in_flight or 0.0) - abandoned))


def read(samples: Samples, look: Look, known: Known) -> Reading:
    """One lane."""
    if _another_backend(samples):
        return Reading(detail="this TGI backend shows no tgi_batch_ series (only v2 and v3 do); canary.without_metrics asks")
    lanes = read_lanes(samples, TABLE) or ((LaneEvidence("0"),) if recognises(samples) else ())
    forward = (samples.total(COUNT) or 0.0) - (samples.total(SUCCESS) or 0.0) - (samples.total(FAILURE) or 0.0)
    in_flight = (samples.total(ASKED[0]) or 0.0) - (samples.total(ASKED[1]) or 0.0) - (samples.total(ASKED[2]) or 0.0)
    return Reading(
        lanes=tuple(
            replace(
                lane,
                progress=TABLE.untouched() | dict(lane.progress),
                running=max(lane.running or 0.0, 1.0 if forward > 0 else 0.0),
                waiting=lane.waiting or 0.0,
                missing=(),
            )
            for lane in lanes
        ),
        in_flight=max(0.0, in_flight) if samples.has(ASKED[0]) else None,
    )


def facts(samples: Samples, known: Known) -> Facts:
    """Every forward is counted, chunks too."""
    return Facts(
        kind="tgi", version=known.version, sighted=True, sight_why="every forward is counted", tokens_at_finish=True
    )


ENGINE = Engine(
    kind="tgi",
    series=(*TABLE.series(), SUCCESS, FAILURE, *ASKED),
    recognises=recognises,
    read=read,
    facts=facts,
    health_is_work=True,
    less_abandoned=less_abandoned,
    once=("/info",),
    about=about_by_info,
    canary=CanaryPlan(
        path="/generate",
        names_model=False,
        body=lambda model: {"inputs": "a", "parameters": {"max_new_tokens": 1}},
        answered=lambda status, body: status == 200 and isinstance(body, dict) and "generated_text" in body,
    ),
)
