"""Ray Serve LLM: vLLM's series as Ray's node agent exports them. Not run by us.

Ray replaces the colon, prefixes ``ray_`` and adds ``ReplicaId`` and ``WorkerId``; the names are inferred from its wrapper,
so both spellings are read. The page is the agent's, so it takes no requests, and its age is Ray's report interval.
"""

from __future__ import annotations

from dataclasses import replace

from ..exposition import Samples
from ..judge import Facts
from . import vllm
from .base import Engine, Known, Look, Reading
from .lanes import read_lanes
from .shared import first_token_counts

PREFIX = "ray_vllm_"
TABLE = replace(vllm.table(PREFIX), labels=("ReplicaId", "engine"))


def recognises(samples: Samples) -> bool:
    """vLLM's token counters under Ray's prefix."""
    return samples.has(f"{PREFIX}generation_tokens_total") or samples.has(f"{PREFIX}iteration_tokens_total_count")


def read(samples: Samples, look: Look, known: Known) -> Reading:
    """One lane per replica and engine."""
    return Reading(
        lanes=read_lanes(samples, TABLE), first_token=first_token_counts(samples, f"{PREFIX}time_to_first_token_seconds")
    )


def facts(samples: Samples, known: Known) -> Facts:
    """As vLLM, but nothing can be asked of the page's own port."""
    seen = vllm.facts(samples, known, prefix=PREFIX, kind="ray-serve")
    return replace(
        seen,
        pins_lanes=False,
        canary="Ray's metrics agent takes no inference requests",
        stalled_floor=30.0,
        floor_why="Ray reports at its own interval",
    )


ENGINE = Engine(
    kind="ray-serve",
    series=tuple(spelling for name in vllm.series(PREFIX) for spelling in (name, name.replace("ray_vllm_", "ray_vllm:"))),
    recognises=recognises,
    read=read,
    facts=facts,
    health_path=None,
    once=(),
    tier=2,
)
