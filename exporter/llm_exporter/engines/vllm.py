"""vLLM 0.6 to 0.33, engines v0 and v1.

Facts (read in the wheels named; run on 0.32.0): v1 counts no chunked-prefill step in its step, prompt and generation
counters, because an output message is only made for new tokens (`v1/core/sched/scheduler.py`, `update_from_output`,
0.8.5 to 0.33.0); during a long prompt only the KV gauge moves, and from 0.8.5 to 0.10.1.1 not even that. v0 counts
every step. ``gpu_cache_usage_perc`` became ``kv_cache_usage_perc`` (both in 0.9.2 to 0.10.2, the old one gone in
0.12.0). ``/health`` is 503 when the engine process is dead (from 0.9.2) and 200 through a hang; the metrics need no
API key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..exposition import Samples
from ..judge import Facts, LaneEvidence
from .base import CanaryPlan, Engine, Known, Look, Page, Reading, one_token
from .lanes import WHOLE, LaneTable, Pick, pick, read_lanes
from .shared import (
    LOOP_BLOCKED,
    LOOP_LAG,
    PROCESS_START,
    about_by_version,
    answer,
    finite,
    first_token_counts,
    loop_lag,
    model_name,
    process_start,
    version_tuple,
)

HEARTBEAT_STEPS = "llm_engine_steps_total"


def table(prefix: str = "vllm:") -> LaneTable:
    """Where vLLM, or an engine derived from it under another prefix, keeps what."""
    return LaneTable(
        labels=("engine",),
        progress=(
            Pick((f"{prefix}iteration_tokens_total_count",)),
            Pick((f"{prefix}generation_tokens_total",)),
            Pick((f"{prefix}prompt_tokens_total",)),
            Pick((f"{prefix}estimated_flops_per_gpu_total",)),
        ),
        running=Pick((f"{prefix}num_requests_running",)),
        waiting=(Pick((f"{prefix}num_requests_waiting",)),),
        optional_waiting=(Pick((f"{prefix}num_requests_swapped",)),),
        deferred=Pick((f"{prefix}num_requests_waiting_by_reason",), {"reason": "deferred"}),
        kv=Pick((f"{prefix}kv_cache_usage_perc", f"{prefix}gpu_cache_usage_perc"), how="max"),
        preemptions=Pick((f"{prefix}num_preemptions_total",)),
        prompt_tokens=Pick((f"{prefix}prompt_tokens_total",)),
        generation_tokens=Pick((f"{prefix}generation_tokens_total",)),
        finished=Pick((f"{prefix}request_success_total",)),
        steps=Pick((f"{prefix}iteration_tokens_total_count",)),
    )


def series(prefix: str = "vllm:") -> tuple[str, ...]:
    """Every series that the adapter reads."""
    return (
        *table(prefix).series(),
        f"{prefix}gpu_cache_usage_perc",
        f"{prefix}engine_sleep_state",
        f"{prefix}time_to_first_token_seconds_bucket",
        "http_requests_total",
        PROCESS_START,
        LOOP_LAG,
        LOOP_BLOCKED,
        HEARTBEAT_STEPS,
    )


def recognises(samples: Samples, prefix: str = "vllm:") -> bool:
    """A step or token counter with an engine's or a model's label.

    Routers re-export the running and waiting gauges of their backends with a ``server`` label and no counter.
    """
    for name in (f"{prefix}iteration_tokens_total_count", f"{prefix}generation_tokens_total"):
        if any(("engine" in s.labels or "model_name" in s.labels) and "server" not in s.labels for s in samples.get(name)):
            return True
    return False


def read(samples: Samples, look: Look, known: Known, prefix: str = "vllm:") -> Reading:
    """Evidence per ``engine`` label, which is one data-parallel rank."""
    incarnation, started = process_start(samples)
    lanes = tuple(_lane(lane, samples, look, prefix) for lane in read_lanes(samples, table(prefix)))
    ok, failed = answers(samples)
    dead = look.health is not None and look.health.status == 503 and _health_proves_death(known)
    return Reading(
        lanes=lanes,
        incarnation=incarnation,
        started=started,
        model=model_name(samples, f"{prefix}num_requests_running"),
        answers_ok=ok,
        answers_failed=failed,
        in_flight=_in_flight(look.extra.get("/load")),
        loop=loop_lag(samples),
        death="its own /health answers 503: the engine process is dead" if dead else None,
        loading="its /health answers 503 and it has not served yet" if dead else None,
        first_token=first_token_counts(samples, f"{prefix}time_to_first_token_seconds"),
    )


def _lane(lane: LaneEvidence, samples: Samples, look: Look, prefix: str) -> LaneEvidence:
    steps = pick(samples, Pick((HEARTBEAT_STEPS,)), ("lane",))
    found = steps.get(lane.lane) or (steps.get(WHOLE) if lane.lane == "0" else None)
    if found is not None:
        name, value = found
        lane = replace(lane, progress={**lane.progress, name: value}, steps=value)
    return replace(lane, asleep=_asleep(lane.lane, samples, prefix) or _paused(look.extra))


def _asleep(lane: str, samples: Samples, prefix: str) -> str | None:
    """``awake`` 0 means asleep; the first form of the gauge had no label and meant the opposite, 1 is asleep (PR 24176)."""
    mine = [s for s in samples.get(f"{prefix}engine_sleep_state") if s.labels.get("engine", lane) == lane]
    labelled = {s.labels["sleep_state"]: s.value for s in mine if "sleep_state" in s.labels}
    if labelled:
        how = next((name for name, value in labelled.items() if name != "awake" and value), None)
        if labelled.get("awake", 1.0 if how is None else 0.0) != 0.0:
            return None
        how = how or "asleep"
        return f"asleep ({how.replace('_', ' ')})"
    return "asleep" if any(s.value == 1.0 for s in mine) else None


def _paused(extra: Mapping[str, Page]) -> str | None:
    for path, words in (("/is_paused", "paused (it says so itself)"), ("/is_sleeping", "asleep (it says so itself)")):
        if answer(extra.get(path)).get(path[1:]) is True:
            return words
    return None


def _in_flight(page: Page | None) -> float | None:
    return finite(answer(page).get("server_load"))


def answers(samples: Samples) -> tuple[float | None, float | None]:
    """Inference answers 2xx and 5xx as prometheus-fastapi-instrumentator counts them; health and metrics do not count."""
    ok = failed = 0.0
    seen = False
    for sample in samples.get("http_requests_total"):
        if not sample.labels.get("handler", "").startswith(
            ("/v1/", "/v2/", "/inference", "/generate", "/pooling", "/embed")
        ):
            continue
        if sample.labels.get("handler") == "/v1/models":
            continue
        seen = True
        status = sample.labels.get("status", "")
        if status.startswith("2"):
            ok += sample.value
        elif status.startswith("5"):
            failed += sample.value
    return (ok, failed) if seen else (None, None)


def _health_proves_death(known: Known) -> bool:
    """0.8.5 to 0.9.1 (v1) never answered 503, so a 503 of an unknown version is proof too."""
    version = _release(known)
    return version is None or version >= (0, 9, 2)


def _release(known: Known) -> tuple[int, ...] | None:
    """Its release; not known of a build from a source without tags, which setuptools-scm calls ``0.1.dev…``."""
    version = version_tuple(known.version)
    return None if version is not None and version < (0, 2) else version


def facts(samples: Samples, known: Known, prefix: str = "vllm:", kind: str = "vllm") -> Facts:
    """Sight by version and series."""
    version = _release(known)
    v1 = any(
        "engine" in s.labels
        for name in ("num_requests_running", "iteration_tokens_total_count", "generation_tokens_total")
        for s in samples.get(f"{prefix}{name}")
    )
    v0 = not v1 and samples.has(f"{prefix}num_requests_swapped")
    new_kv, old_kv = samples.has(f"{prefix}kv_cache_usage_perc"), samples.has(f"{prefix}gpu_cache_usage_perc")
    flops = (samples.total(f"{prefix}estimated_flops_per_gpu_total") or 0.0) > 0
    if samples.has(HEARTBEAT_STEPS) or flops or v0:
        sighted, why = True, "every step is counted"
    elif not (new_kv or old_kv):
        sighted, why = False, "the page has no KV usage, so a long prefill cannot be seen"
    elif (version is not None and kind == "vllm" and version >= (0, 10, 2)) or (new_kv and not old_kv):
        sighted, why = True, "KV usage moves with every prefill chunk"
    else:
        sighted, why = False, "before 0.10.2 nothing moves during a long prefill"
    return Facts(kind=kind, version=known.version, sighted=sighted, sight_why=why, pins_lanes=True)


ENGINE = Engine(
    kind="vllm",
    series=series(),
    recognises=recognises,
    read=read,
    facts=facts,
    each_look=("/load", "/is_sleeping", "/is_paused"),
    once=("/version", "/v1/models"),
    canary=CanaryPlan(body=one_token, lane_header="X-data-parallel-rank"),
    mend={
        0: "no vllm: series: start vLLM without --disable-log-stats",
        500: "vLLM's multi-process metrics directory fails, often because it is on a network volume (vLLM issue 49983)",
    },
    about=about_by_version,
)
