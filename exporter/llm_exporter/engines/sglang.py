"""SGLang 0.4.1 to 0.5.23.

Facts: ``realtime_tokens_total`` (from 0.5.8) moves with every decode iteration and every prefill chunk;
``generation_tokens_total`` and ``prompt_tokens_total`` only when a request finishes, and they name no rank. Before 0.5.8
a decode shows in ``num_used_tokens`` every 40 steps, and in ``token_usage`` as far as it is printed. Gauges may be stale
for 30 s after idle (issue 26495) and were so for ever up to 0.4.3. Metrics are always multi-process: no start time.
With disaggregation a KV hand-off that hangs shows in queues of its own, while the usual ones are zero; the cause may be
the other server.
``/health`` generates a token and is 503 in healthy long prefills (issues 22511, 10856, 26482), so it proves nothing
and is asked only until the server has served. ``/health_generate`` is dropped by a busy scheduler and is the gentlest
canary there is; its own limit is 20 s. ``/ready`` is not used: it is 503 while paused, but also once a health check
failed, and our own canary is one. Its watchdog kills after 300 to 450 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..exposition import Samples
from ..judge import Facts, LaneEvidence
from .base import CanaryPlan, Engine, Known, Look, Page, Reading
from .lanes import WHOLE, LaneTable, Pick, pick, read_lanes
from .shared import LOOP_BLOCKED, LOOP_LAG, first_token_counts, listed_models, loop_lag, model_name

REALTIME = "sglang:realtime_tokens_total"
IDLE_SECONDS = "sglang:scheduler_idle_seconds_total"
PAUSED = "sglang:num_paused_reqs"
OPEN = "sglang:http_requests_active"

TABLE = LaneTable(
    labels=("dp_rank", "tp_rank"),
    progress=(
        *(Pick((REALTIME,), {"mode": mode}) for mode in ("decode", "prefill_compute", "prefill_cache")),
        Pick(("sglang:cuda_graph_passes_total",)),
        Pick(("sglang:forward_execution_seconds_total", "sglang:gpu_execution_seconds_total")),
        Pick(("sglang:generation_tokens_total",)),
        Pick(("sglang:prompt_tokens_total",)),
    ),
    running=Pick(("sglang:num_running_reqs",)),
    waiting=(Pick(("sglang:num_queue_reqs",)),),
    optional_waiting=(Pick(("sglang:num_grammar_queue_reqs",)),),
    remote_waiting=(
        Pick(("sglang:num_prefill_inflight_queue_reqs", "sglang:num_prefill_infight_queue_reqs")),
        Pick(("sglang:num_prefill_bootstrap_queue_reqs", "sglang:num_prefill_prealloc_queue_reqs")),
        Pick(("sglang:num_decode_prealloc_queue_reqs",)),
        Pick(("sglang:num_decode_transfer_queue_reqs",)),
    ),
    kv=Pick(("sglang:token_usage",), how="max"),
    kv_more=Pick(("sglang:num_used_tokens",)),
    preemptions=Pick(("sglang:num_retracted_requests_total", "sglang:num_retractions_total")),
    prompt_tokens=Pick(("sglang:prompt_tokens_total",)),
    generation_tokens=Pick(("sglang:generation_tokens_total",)),
    finished=Pick(("sglang:num_requests_total",)),
    steps=Pick(("sglang:cuda_graph_passes_total",)),
)


def recognises(samples: Samples) -> bool:
    """Its queue gauges or token counters; a router of SGLang has neither."""
    return any(samples.has(name) for name in ("sglang:num_running_reqs", "sglang:num_queue_reqs", REALTIME))


def read(samples: Samples, look: Look, known: Known) -> Reading:
    """Evidence per data-parallel and tensor-parallel rank."""
    lanes = _by_rank(tuple(_lane(lane, samples) for lane in read_lanes(samples, TABLE)))
    ready = not (look.health is not None and look.health.status == 503)
    generating = [s.value for s in samples.get(OPEN) if s.labels.get("endpoint", "").startswith(("/generate", "/v1/c"))]
    return Reading(
        lanes=lanes,
        detail="" if lanes else "no sglang: series yet: nothing was served since it started",
        model=model_name(samples, "sglang:num_running_reqs"),
        in_flight=sum(generating) if generating else None,
        loop=loop_lag(samples),
        loading=None if ready else "its /health answers 503 and no token was made yet: it warms up",
        first_token=first_token_counts(samples, "sglang:time_to_first_token_seconds"),
    )


def _by_rank(lanes: tuple[LaneEvidence, ...]) -> tuple[LaneEvidence, ...]:
    """A data-parallel rank that shows one tensor-parallel rank is named by itself: its lane is ``1``, not ``1/0``."""
    ranks = [lane.lane.split("/")[0] for lane in lanes]
    return tuple(
        replace(lane, lane=rank) if ranks.count(rank) == 1 else lane for lane, rank in zip(lanes, ranks, strict=True)
    )


def _lane(lane: LaneEvidence, samples: Samples) -> LaneEvidence:
    def of(what: Pick, counter: bool = False) -> float | None:
        found = pick(samples, what, TABLE.labels, counter=counter)
        name_and_value = found.get(lane.lane) or found.get(WHOLE)
        return None if name_and_value is None else name_and_value[1]

    paused = of(Pick((PAUSED,)))
    decoded, computed, cached = (
        of(Pick((REALTIME,), {"mode": mode}), counter=True) for mode in ("decode", "prefill_compute", "prefill_cache")
    )
    lane = replace(
        lane,
        alive=of(Pick((IDLE_SECONDS,))),
        asleep=f"paused ({paused:g} requests held for a weight update)" if paused else None,
    )
    if decoded is None and computed is None:
        return lane
    # Tokens as they are made, not as requests finish. A prefill node shows no decode, and is not held to one.
    return replace(lane, generation_tokens=decoded, prompt_tokens=(computed or 0.0) + (cached or 0.0))


def facts(samples: Samples, known: Known) -> Facts:
    """Sighted with the realtime counters; before them only finished requests are counted."""
    sighted = samples.has(REALTIME)
    return Facts(
        kind="sglang",
        version=known.version,
        sighted=sighted,
        sight_why="every forward is counted" if sighted else "before 0.5.8 tokens are counted only when a request finishes",
        stuck_after=480.0,
        stalled_floor=30.0,
        stuck_floor=60.0,
        floor_why="SGLang's gauges may be 30 s old",
        health_is_idle_canary=True,
        tokens_at_finish=not sighted,
    )


def answers_as(pages: Mapping[str, Page]) -> bool:
    """Without ``--enable-metrics`` its list of models still says whose they are."""
    return any(model.get("owned_by") == "sglang" for model in listed_models(pages.get("/v1/models")) or ())


ENGINE = Engine(
    kind="sglang",
    series=(
        *TABLE.series(),
        IDLE_SECONDS,
        PAUSED,
        OPEN,
        "sglang:time_to_first_token_seconds_bucket",
        LOOP_LAG,
        LOOP_BLOCKED,
    ),
    recognises=recognises,
    read=read,
    facts=facts,
    health_is_work=True,
    health_until_served=True,
    once=("/v1/models",),
    canary=CanaryPlan(
        path="/health_generate",
        method="GET",
        silent_codes=frozenset({429, 503}),
        answered=lambda status, body: status == 200,
    ),
    answers_as=answers_as,
    mend={
        0: "start SGLang with --enable-metrics",
        404: "start SGLang with --enable-metrics (or --enable-metrics-for-all-schedulers)",
    },
)
