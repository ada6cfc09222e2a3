"""TensorRT-LLM's trtllm-serve. Not run by us.

Facts (``tensorrt_llm/serve/openai_server.py``): its Prometheus series move only when a request finishes, so a long
request looks frozen: blind. Only ``trtllm_scheduled_batch_size`` (from 2026) is live: set before each forward, per rank
and process, 0 when idle. ``GET /metrics`` is JSON and destructive (it drains the statistics for whoever reads them next):
never asked, but for the one look that tells what a server without the text is; the text is at ``/prometheus/metrics``.
``/health`` is 503 after a fatal error (issue 18663: for ever). Its HangDetector kills after 300 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..exposition import Samples
from ..judge import Facts
from .base import CanaryPlan, Engine, Known, Look, Page, Reading, one_token
from .lanes import LaneTable, Pick, read_lanes
from .shared import about_by_version, first_token_counts

TABLE = LaneTable(
    labels=(),
    progress=(
        Pick(("trtllm_request_success_total",)),
        Pick(("trtllm_e2e_request_latency_seconds_count",)),
        Pick(("trtllm_time_to_first_token_seconds_count",)),
        Pick(("trtllm_generation_tokens_total",)),
    ),
    running=Pick(("trtllm_num_requests_running",)),
    waiting=(Pick(("trtllm_num_requests_waiting",)),),
    kv=Pick(("trtllm_kv_cache_utilization",), how="max"),
    finished=Pick(("trtllm_request_success_total",)),
    generation_tokens=Pick(("trtllm_generation_tokens_total",)),
)


SCHEDULED = "trtllm_scheduled_batch_size"


def recognises(samples: Samples) -> bool:
    """Any of its series."""
    return any(name.startswith("trtllm_") for name in samples.names())


def read(samples: Samples, look: Look, known: Known) -> Reading:
    """One lane."""
    dead = look.health is not None and look.health.status == 503
    now = max((sample.value for sample in samples.get(SCHEDULED)), default=0.0)
    lanes = read_lanes(samples, TABLE)
    return Reading(
        lanes=tuple(replace(lane, running=max(lane.running, now)) if lane.running is not None else lane for lane in lanes),
        detail="" if samples.by_name else f"no trtllm_ series: {NO_TEXT}",
        death="its own /health answers 503: the executor is dead" if dead else None,
        loading="its /health answers 503 and it has not served yet" if dead else None,
        first_token=first_token_counts(samples, "trtllm_time_to_first_token_seconds"),
    )


def facts(samples: Samples, known: Known) -> Facts:
    """Blind by construction."""
    return Facts(
        kind="trtllm",
        version=known.version,
        sighted=False,
        sight_why="its series move only when a request finishes",
        stuck_after=480.0,
        tokens_at_finish=True,
    )


NO_TEXT = "set return_perf_metrics: true in trtllm-serve's options"


def answers_as(pages: Mapping[str, Page]) -> bool:
    """JSON at ``/metrics``, a list of iterations: trtllm-serve without the text."""
    page = pages.get("/metrics")
    said = page.json() if page is not None and page.status == 200 and page.body.lstrip().startswith("[") else None
    return isinstance(said, list) and all(isinstance(entry, dict) and "iter" in entry for entry in said)


ENGINE = Engine(
    kind="trtllm",
    series=(*TABLE.series(), SCHEDULED, "trtllm_time_to_first_token_seconds_bucket"),
    recognises=recognises,
    read=read,
    facts=facts,
    metrics_path="/prometheus/metrics",
    once=("/version", "/v1/models"),
    canary=CanaryPlan(body=one_token),
    mend={0: NO_TEXT, 404: NO_TEXT},
    about=about_by_version,
    answers_as=answers_as,
    tier=2,
)
