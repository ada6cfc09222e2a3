"""The page around the engine's series: Python, process and HTTP families, and vLLM's cache configuration."""

from __future__ import annotations

from aiohttp import web
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    Summary,
    disable_created_metrics,
    generate_latest,
)

from llm_sim.engine_metrics import EngineMetrics, Families
from llm_sim.families import ENGINE
from llm_sim.settings import Settings

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"
"""What vLLM 0.32.0 answered with (recordings); it depends on the prometheus_client installed beside it."""

_UNCOUNTED = frozenset({"/metrics", "/health", "/ping", "/version", "/debug/pids"})
_FINE_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5),
    *(5, 7.5, 10, 30, 60),
)
_CACHE_CONFIG_NOT_SET = (
    *("cache_hit_alignment_tokens", "hash_block_size", "kv_cache_layout", "kv_offloading_size"),
    *("mamba_block_size", "mamba_page_size_padded", "num_cpu_blocks", "num_gpu_blocks_override"),
    *("prefix_match_unit", "sliding_window"),
)
_CACHE_CONFIG_FIXED = {
    "_block_size_resolved": "True",
    "cache_dtype": "auto",
    "enable_mamba_shared_prefix_checkpoint": "False",
    "enable_prefix_caching": "True",
    "gpu_memory_utilization": "0.92",
    "is_attention_free": "False",
    "kv_cache_dtype_skip_layers": "[]",
    "kv_cache_memory_bytes": "1073741824",
    "kv_offloading_backend": "native",
    "kv_sharing_fast_prefill": "False",
    "mamba_cache_dtype": "auto",
    "mamba_cache_mode": "none",
    "mamba_ssm_cache_dtype": "float32",
    "prefix_cache_retention_interval": "0",
    "prefix_caching_hash_algo": "sha256",
    "replayssm_buffer_len": "16",
    "skip_page_size_padded": "None",
    "swa_bounded_replay": "True",
    "use_kda_recoverssm": "False",
    "use_replayssm": "False",
    "user_specified_block_size": "False",
}


class Page:
    """Everything behind ``/metrics``: ``engines`` has the series of each data-parallel rank."""

    def __init__(self, settings: Settings) -> None:
        self.registry = CollectorRegistry()
        one_process = settings.data_parallel_size == 1
        if one_process:
            GCCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)
            ProcessCollector(registry=self.registry)
        else:  # vLLM runs as many API servers as ranks then; their shared page has no process_* and no _created
            disable_created_metrics()  # type: ignore[no-untyped-call]
        families = Families.register(self.registry)
        ranks = range(settings.data_parallel_size)
        self.engines = [EngineMetrics(families, settings.model, rank, gauges_at_once=one_process) for rank in ranks]
        configurations = [_cache_config(settings, rank) for rank in ranks]
        information = Gauge(
            "vllm:cache_config_info",
            "Information of the LLMEngine CacheConfig",
            list(configurations[0]),
            registry=self.registry,
        )
        for configuration in configurations:
            information.labels(**configuration).set(1)
        self._http = _HttpFamilies(self.registry)

    def render(self) -> bytes:
        """The text of one scrape."""
        return generate_latest(self.registry)

    def record_request(self, request: web.Request, status: int, response_bytes: int, seconds: float) -> None:
        """Account for one HTTP request; vLLM leaves out the cheap ones, and so do we."""
        if request.path in _UNCOUNTED:
            return
        self._http.record(request, status, response_bytes, seconds)


class _HttpFamilies:
    def __init__(self, registry: CollectorRegistry) -> None:
        per_handler = " by handler. Only value of header is respected. Otherwise ignored. No percentile calculated. "
        self._total = Counter(
            "http_requests",
            "Total number of requests by method, status and handler.",
            ["method", "status", "handler"],
            registry=registry,
        )
        self._request_size = Summary(
            "http_request_size_bytes",
            f"Content length of incoming requests{per_handler}",
            ["handler"],
            registry=registry,
        )
        self._response_size = Summary(
            "http_response_size_bytes",
            f"Content length of outgoing responses{per_handler}",
            ["handler"],
            registry=registry,
        )
        self._fine = Histogram(
            "http_request_duration_highr_seconds",
            "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ",
            buckets=_FINE_BUCKETS,
            registry=registry,
        )
        self._coarse = Histogram(
            "http_request_duration_seconds",
            "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ",
            ["handler", "method"],
            buckets=(0.1, 0.5, 1),
            registry=registry,
        )

    def record(self, request: web.Request, status: int, response_bytes: int, seconds: float) -> None:
        handler = request.path if request.match_info.http_exception is None else "none"
        self._total.labels(method=request.method, status=f"{status // 100}xx", handler=handler).inc()
        self._request_size.labels(handler=handler).observe(request.content_length or 0)
        self._response_size.labels(handler=handler).observe(response_bytes)
        self._fine.observe(seconds)
        self._coarse.labels(handler=handler, method=request.method).observe(seconds)


def _cache_config(settings: Settings, rank: int) -> dict[str, str]:
    tokens = settings.kv_blocks * settings.block_size
    return {
        **_CACHE_CONFIG_FIXED,
        **dict.fromkeys(_CACHE_CONFIG_NOT_SET, "None"),
        ENGINE: str(rank),
        "block_size": str(settings.block_size),
        "effective_attention_block_size": str(settings.block_size),
        "kv_cache_max_concurrency": str(round(tokens / settings.max_model_len, 2)),
        "kv_cache_size_tokens": str(tokens),
        "num_gpu_blocks": str(settings.kv_blocks),
    }
