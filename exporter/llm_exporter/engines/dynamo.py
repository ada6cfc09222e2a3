"""NVIDIA Dynamo worker pages: the engine's own series passed through, with Dynamo's beside them. Not run by us.

``DYN_SYSTEM_PORT`` (off by default) serves them and takes no inference requests: no canary. Older workers wrote
TensorRT-LLM's prefix with a colon. The page is judged by the engine that it shows.
"""

from __future__ import annotations

from dataclasses import replace

from ..exposition import Samples
from ..judge import Facts
from . import sglang, trtllm, vllm
from .base import Engine, Known, Look, Reading

WITHIN = (vllm.ENGINE, sglang.ENGINE, trtllm.ENGINE)
COLON = tuple(name.replace("trtllm_", "trtllm:") for name in trtllm.ENGINE.series)
MARKS = ("dynamo_component_requests_total", "dynamo_component_uptime_seconds", "dynamo_component_inflight_requests")


def recognises(samples: Samples) -> bool:
    """Dynamo's component series and an engine's beside them."""
    marked = any(name.startswith("dynamo_component_") for name in samples.names())
    return marked and _within(samples) is not None


def _within(samples: Samples) -> Engine | None:
    return next((engine for engine in WITHIN if engine.recognises(samples)), None)


def read(samples: Samples, look: Look, known: Known) -> Reading:
    """As the engine within reads it; Dynamo's own ``/health`` says nothing of the engine's death."""
    engine = _within(samples)
    if engine is None:
        return Reading(detail="the page has Dynamo's series but no engine's: the worker passes none through")
    return replace(engine.read(samples, replace(look, health=None), known), death=None, loading=None)


def facts(samples: Samples, known: Known) -> Facts:
    """The engine's own, without a canary."""
    engine = _within(samples)
    seen = engine.facts(samples, known) if engine is not None else Facts("dynamo")
    why = "Dynamo's system port takes no inference requests"
    return replace(seen, kind="dynamo", pins_lanes=False, canary=why, health_is_idle_canary=False)


ENGINE = Engine(
    kind="dynamo",
    series=tuple(dict.fromkeys(name for engine in WITHIN for name in engine.series)) + COLON + MARKS,
    recognises=recognises,
    read=read,
    facts=facts,
    once=(),
    tier=0,
)
