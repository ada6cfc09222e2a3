"""vLLM's own series: which of them a step moves, and by how much.

vLLM builds iteration statistics only for a step that has outputs, so a step that computes a chunk of a long
prompt moves nothing but gauges. A request's histograms are observed when it finishes; an aborted one is
counted nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from llm_sim.families import ENGINE, FAMILIES, MODEL, Family, Kind
from llm_sim.scheduler import Output, Stats
from llm_sim.wire import StepResult

_STEP_GAUGES = frozenset(
    {
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:num_requests_waiting_by_reason",
        "vllm:kv_cache_usage_perc",
    }
)


@dataclass
class Track:
    """What the API process knows of one request; times in monotonic seconds."""

    prompt_tokens: int
    max_tokens: int
    arrived_at: float
    finish_reason: str = "length"
    generated: int = 0
    first_token_at: float = 0.0
    last_token_at: float = 0.0


@dataclass
class Families:
    """The registered families, by name."""

    counters: dict[str, Counter] = field(default_factory=dict)
    gauges: dict[str, Gauge] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)

    @classmethod
    def register(cls, registry: CollectorRegistry) -> Families:
        """Register all of :data:`llm_sim.families.FAMILIES`, in its order."""
        families = cls()
        for family in FAMILIES:
            labels = [
                MODEL,
                *([ENGINE] if family.per_engine else []),
                *([family.label] if family.label else []),
            ]
            match family.kind:
                case Kind.COUNTER:
                    families.counters[family.name] = Counter(family.name, family.help, labels, registry=registry)
                case Kind.GAUGE:
                    families.gauges[family.name] = Gauge(family.name, family.help, labels, registry=registry)
                case Kind.HISTOGRAM:
                    families.histograms[family.name] = Histogram(
                        family.name, family.help, labels, registry=registry, buckets=family.buckets
                    )
        return families


class EngineMetrics:
    """The series of one data-parallel rank.

    ``gauges_at_once`` is False where vLLM's registry is a multiprocess one: a gauge appears there when it is first
    set, which is after the rank's first step.
    """

    def __init__(self, families: Families, model: str, rank: int, *, gauges_at_once: bool) -> None:
        self._families = families
        self._model = model
        self._rank = str(rank)
        for family in FAMILIES:
            if family.name in _STEP_GAUGES and not gauges_at_once:
                continue
            for value in family.values or (None,):
                self._touch(family, value)
        self._gauge("vllm:engine_sleep_state", sleep_state="awake").set(1)
        self._between_tokens = self._histogram("vllm:inter_token_latency_seconds")

    def record(self, result: StepResult, tracks: dict[str, Track], now: float) -> None:
        """Account for one step; ``tracks`` are the requests that have not finished, by id."""
        if result.stats is not None:
            self._record_stats(result.stats)
        known = [(output, tracks[output.request_id]) for output in result.outputs if output.request_id in tracks]
        if not known:
            return
        first = [track for _, track in known if track.generated == 0]
        prompt_tokens = sum(track.prompt_tokens for track in first)
        self._counter("vllm:prompt_tokens").inc(prompt_tokens)
        self._counter("vllm:prompt_tokens_by_source", source="local_compute").inc(prompt_tokens)
        self._counter("vllm:generation_tokens").inc(len(known))
        self._histogram("vllm:iteration_tokens_total").observe(prompt_tokens + len(known))
        for output, track in known:
            self._record_token(track, now)
            if output.finish_reason is not None:
                self._record_finish(output, track, now)

    def _record_stats(self, stats: Stats) -> None:
        self._gauge("vllm:num_requests_running").set(stats.running)
        self._gauge("vllm:num_requests_waiting").set(stats.waiting)
        self._gauge("vllm:num_requests_waiting_by_reason", reason="capacity").set(stats.waiting)
        self._gauge("vllm:num_requests_waiting_by_reason", reason="deferred").set(0)
        self._gauge("vllm:kv_cache_usage_perc").set(stats.kv_usage)
        self._counter("vllm:prefix_cache_queries").inc(stats.prefix_queries)
        self._counter("vllm:num_preemptions").inc(stats.preemptions)

    def _record_token(self, track: Track, now: float) -> None:
        if track.generated == 0:
            track.first_token_at = now
            self._histogram("vllm:time_to_first_token_seconds").observe(now - track.arrived_at)
        else:
            self._between_tokens.observe(now - track.last_token_at)
        track.last_token_at = now
        track.generated += 1

    def _record_finish(self, output: Output, track: Track, now: float) -> None:
        decode_seconds = now - track.first_token_at
        observed = {
            "vllm:request_prompt_tokens": track.prompt_tokens,
            "vllm:request_generation_tokens": track.generated,
            "vllm:request_max_num_generation_tokens": track.generated,
            "vllm:request_params_n": 1,
            "vllm:request_params_max_tokens": track.max_tokens,
            "vllm:request_time_per_output_token_seconds": decode_seconds / max(1, track.generated - 1),
            "vllm:e2e_request_latency_seconds": now - track.arrived_at,
            "vllm:request_queue_time_seconds": output.scheduled_at - output.queued_at,
            "vllm:request_inference_time_seconds": now - output.scheduled_at,
            "vllm:request_prefill_time_seconds": track.first_token_at - output.scheduled_at,
            "vllm:request_decode_time_seconds": decode_seconds,
            "vllm:request_num_preemptions": 0,
            "vllm:request_prefill_kv_computed_tokens": track.prompt_tokens,
        }
        for name, value in observed.items():
            self._histogram(name).observe(value)
        self._counter("vllm:request_success", finished_reason=track.finish_reason).inc()

    def _touch(self, family: Family, value: str | None) -> None:
        own = {family.label: value} if family.label and value is not None else {}
        match family.kind:
            case Kind.COUNTER if family.per_engine:
                self._counter(family.name, **own)
            case Kind.COUNTER:
                self._families.counters[family.name].labels(**{MODEL: self._model}, **own)
            case Kind.GAUGE:
                self._gauge(family.name, **own)
            case Kind.HISTOGRAM:
                self._histogram(family.name)

    def _counter(self, name: str, **own: str) -> Counter:
        return self._families.counters[name].labels(**{MODEL: self._model, ENGINE: self._rank}, **own)

    def _gauge(self, name: str, **own: str) -> Gauge:
        return self._families.gauges[name].labels(**{MODEL: self._model, ENGINE: self._rank}, **own)

    def _histogram(self, name: str) -> Histogram:
        return self._families.histograms[name].labels(**{MODEL: self._model, ENGINE: self._rank})
