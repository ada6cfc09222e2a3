"""LMDeploy. Not run by us.

Facts: gauges come from a poll every 10 s; ``iteration_tokens_total_count`` counts request outputs, not engine steps;
``/metrics`` needs the API key (``lmdeploy/serve/utils/server_utils.py``). ``/health`` says ``initializing``,
``healthy``, ``sleeping`` (200) or ``unhealthy``.
"""

from __future__ import annotations

from dataclasses import replace

from ..exposition import Samples
from ..judge import Facts
from .base import CanaryPlan, Engine, Known, Look, Reading, one_word
from .lanes import LaneTable, Pick, read_lanes
from .shared import PROCESS_START, first_model, first_token_counts, process_start

TABLE = LaneTable(
    labels=("engine",),
    progress=(
        Pick(("lmdeploy:iteration_tokens_total_count",)),
        Pick(("lmdeploy:generation_tokens_total",)),
        Pick(("lmdeploy:prompt_tokens_total",)),
    ),
    running=Pick(("lmdeploy:num_requests_running",)),
    waiting=(Pick(("lmdeploy:num_requests_waiting",)),),
    optional_waiting=(Pick(("lmdeploy:num_api_requests_waiting",)),),
    kv=Pick(("lmdeploy:gpu_cache_usage_perc",), how="max"),
    prompt_tokens=Pick(("lmdeploy:prompt_tokens_total",)),
    generation_tokens=Pick(("lmdeploy:generation_tokens_total",)),
    finished=Pick(("lmdeploy:request_success_total",)),
    steps=Pick(("lmdeploy:iteration_tokens_total_count",)),
)


def recognises(samples: Samples) -> bool:
    """Its step or running series."""
    return samples.has("lmdeploy:iteration_tokens_total_count") or samples.has("lmdeploy:num_requests_running")


def read(samples: Samples, look: Look, known: Known) -> Reading:
    """Evidence per ``engine`` label, with what ``/health`` says of sleep and start."""
    said = look.health.json() if look.health is not None else None
    status = said.get("status") if isinstance(said, dict) else None
    incarnation, started = process_start(samples)
    asleep = "asleep (it says so itself)" if status == "sleeping" else None
    return Reading(
        lanes=tuple(replace(lane, asleep=asleep) for lane in read_lanes(samples, TABLE)),
        incarnation=incarnation,
        started=started,
        loading="its /health says initializing" if status == "initializing" else None,
        first_token=first_token_counts(samples, "lmdeploy:time_to_first_token_seconds"),
    )


def facts(samples: Samples, known: Known) -> Facts:
    """Its KV usage follows a prefill, ten seconds late."""
    return Facts(
        kind="lmdeploy",
        version=known.version,
        sighted=samples.has("lmdeploy:gpu_cache_usage_perc"),
        sight_why="KV usage is refreshed every 10 s"
        if samples.has("lmdeploy:gpu_cache_usage_perc")
        else "no KV usage on the page",
        stalled_floor=30.0,
        stuck_floor=60.0,
        floor_why="LMDeploy polls its gauges every 10 s",
    )


ENGINE = Engine(
    kind="lmdeploy",
    series=(*TABLE.series(), PROCESS_START, "lmdeploy:time_to_first_token_seconds_bucket"),
    recognises=recognises,
    read=read,
    facts=facts,
    canary=CanaryPlan(body=one_word),
    mend={401: "LMDeploy guards /metrics with its API key: give bearer_token_file"},
    about=lambda pages: Known(model=first_model(pages.get("/v1/models"))),
    tier=2,
)
