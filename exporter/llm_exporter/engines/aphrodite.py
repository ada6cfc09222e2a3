"""Aphrodite 0.24: vLLM v1 under another prefix (``aphrodite/v1/metrics/loggers.py``). Not run by us."""

from __future__ import annotations

from functools import partial

from . import vllm
from .base import CanaryPlan, Engine, one_token
from .shared import about_by_version

PREFIX = "aphrodite:"

ENGINE = Engine(
    kind="aphrodite",
    series=vllm.series(PREFIX),
    recognises=partial(vllm.recognises, prefix=PREFIX),
    read=partial(vllm.read, prefix=PREFIX),
    facts=partial(vllm.facts, prefix=PREFIX, kind="aphrodite"),
    once=("/version", "/v1/models"),
    canary=CanaryPlan(body=one_token, lane_header="X-data-parallel-rank"),
    about=about_by_version,
    tier=2,
)
