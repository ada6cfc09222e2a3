"""The metric families of vLLM 0.32.0's ``/metrics``, in its order: names, helps, label values, buckets.

Source: tests/recordings/vllm-idle-busy-idle.jsonl.gz, recorded from the real server; a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MODEL = "model_name"
ENGINE = "engine"


class Kind(StrEnum):
    """The metric types that vLLM uses."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Family:
    """One family; ``values`` are the values of its own ``label``, all present from the first scrape on."""

    name: str
    kind: Kind
    help: str
    label: str | None = None
    values: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    per_engine: bool = True


_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560),
)
_BETWEEN_TOKENS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1, 2.5, 5, 7.5, 10, 20, 40, 80),
)
_REQUEST_SECONDS = (
    *(0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60),
    *(120, 240, 480, 960, 1920, 7680),
)

FINISHED_REASONS = ("stop", "length", "abort", "error", "repetition")


def _counter(name: str, text: str, label: str | None = None, values: tuple[str, ...] = ()) -> Family:
    return Family(name, Kind.COUNTER, text, label, values)


def _gauge(name: str, text: str, label: str | None = None, values: tuple[str, ...] = ()) -> Family:
    return Family(name, Kind.GAUGE, text, label, values)


def _histogram(name: str, text: str, buckets: tuple[float, ...]) -> Family:
    return Family(name, Kind.HISTOGRAM, text, buckets=buckets)


def _seconds(name: str, text: str) -> Family:
    return _histogram(name, text, _REQUEST_SECONDS)


FAMILIES: tuple[Family, ...] = (
    _counter(
        "vllm:estimated_flops_per_gpu",
        "Estimated number of floating point operations per GPU (for Model Flops Utilization calculations).",
    ),
    _counter(
        "vllm:estimated_read_bytes_per_gpu",
        "Estimated number of bytes read from memory per GPU (for Model Flops Utilization calculations).",
    ),
    _counter(
        "vllm:estimated_write_bytes_per_gpu",
        "Estimated number of bytes written to memory per GPU (for Model Flops Utilization calculations).",
    ),
    _gauge("vllm:num_requests_running", "Number of requests in model execution batches."),
    _gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed."),
    _gauge(
        "vllm:num_requests_waiting_by_reason",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; "
        "'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). "
        "Sum of all reasons equals vllm:num_requests_waiting.",
        "reason",
        ("capacity", "deferred"),
    ),
    _gauge(
        "vllm:engine_sleep_state",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
        "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
        "sleep_state",
        ("awake", "weights_offloaded", "discard_all"),
    ),
    _gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage."),
    _counter("vllm:prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens."),
    _counter("vllm:prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens."),
    _counter(
        "vllm:external_prefix_cache_queries",
        "External prefix cache queries from KV connector cross-instance cache sharing, "
        "in terms of number of queried tokens.",
    ),
    _counter(
        "vllm:external_prefix_cache_hits",
        "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens.",
    ),
    _counter("vllm:mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items."),
    _counter("vllm:mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items."),
    _counter("vllm:num_preemptions", "Cumulative number of preemption from the engine."),
    _counter("vllm:prompt_tokens", "Number of prefill tokens processed."),
    _counter(
        "vllm:prompt_tokens_by_source",
        "Number of prompt tokens by source.",
        "source",
        ("local_compute", "local_cache_hit", "external_kv_transfer"),
    ),
    _counter("vllm:prompt_tokens_cached", "Number of cached prompt tokens (local + external)."),
    _counter(
        "vllm:prompt_tokens_cached_by_source",
        "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), "
        "host (offloaded to DRAM), disk, p2p (transferred from another vLLM instance) "
        "or external_unspecified. Counted at admission; "
        "sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
        "source",
        ("device", "host", "p2p", "disk", "external_unspecified"),
    ),
    _counter("vllm:generation_tokens", "Number of generation tokens processed."),
    _counter(
        "vllm:request_success",
        "Count of successfully processed requests.",
        "finished_reason",
        FINISHED_REASONS,
    ),
    Family(
        "vllm:admission_rejections",
        Kind.COUNTER,
        "Number of admission attempts rejected by a queue limit, by reason.",
        "reason",
        ("max_num_queued_reqs", "max_num_queued_tokens"),
        per_engine=False,
    ),
    _histogram("vllm:request_prompt_tokens", "Number of prefill tokens processed.", _TOKENS),
    _histogram("vllm:request_generation_tokens", "Number of generation tokens processed.", _TOKENS),
    _histogram("vllm:iteration_tokens_total", "Histogram of number of tokens per engine_step.", _STEP_TOKENS),
    _histogram(
        "vllm:request_max_num_generation_tokens",
        "Histogram of maximum number of requested generation tokens.",
        _TOKENS,
    ),
    _histogram("vllm:request_params_n", "Histogram of the n request parameter.", (1, 2, 5, 10, 20)),
    _histogram("vllm:request_params_max_tokens", "Histogram of the max_tokens request parameter.", _TOKENS),
    _histogram("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", _FIRST_TOKEN),
    _histogram("vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", _BETWEEN_TOKENS),
    _histogram(
        "vllm:request_time_per_output_token_seconds",
        "Histogram of time_per_output_token_seconds per request.",
        _BETWEEN_TOKENS,
    ),
    _seconds("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds."),
    _seconds("vllm:request_queue_time_seconds", "Histogram of time spent in WAITING phase for request."),
    _seconds("vllm:request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request."),
    _seconds("vllm:request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request."),
    _seconds("vllm:request_decode_time_seconds", "Histogram of time spent in DECODE phase for request."),
    _histogram(
        "vllm:request_num_preemptions",
        "Histogram of the number of times a request was preempted.",
        (1, 2, 3, 4, 5, 10, 20),
    ),
    _histogram(
        "vllm:request_prefill_kv_computed_tokens",
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        _TOKENS,
    ),
)
