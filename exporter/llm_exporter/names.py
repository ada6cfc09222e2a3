"""Every metric that the exporter serves: the one place of names, types, labels and meanings.

All values are as of the last observation of the target, not of the scrape: progress needs a cadence of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "info", "stateset"]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family; `name` is the name of its samples, with ``_total`` or ``_info``."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()

    @property
    def text_type(self) -> str:
        """Its type in the classic text format, which knows neither info nor stateset."""
        return "counter" if self.kind == "counter" else "gauge"

    @property
    def family_name(self) -> str:
        """Its family's name in OpenMetrics, without the suffix of its samples."""
        suffix = {"counter": "_total", "info": "_info"}.get(self.kind, "")
        return self.name.removesuffix(suffix) if suffix else self.name


T = ("target",)
L = ("target", "lane")

TARGET_FAMILIES: tuple[Family, ...] = (
    Family("llm_health_state", "stateset", "State of the target; exactly one is 1.", (*T, "llm_health_state")),
    Family("llm_up", "gauge", "1 if the last observation got an answer within three intervals, else 0.", T),
    Family(
        "llm_target_info",
        "info",
        "What the target is; prefill_blind: a long prompt shows no progress there. Labels of the configuration are added.",
        (*T, "engine_kind", "version", "model", "prefill_blind"),
    ),
    Family("llm_health_live", "gauge", "1 unless the target is stuck.", T),
    Family("llm_health_ready", "gauge", "1 if the target can take requests and is below its limits.", T),
    Family("llm_health_check_failed", "gauge", "1 if this check of live, ready or startup fails.", (*T, "check")),
    Family("llm_health_queue_depth", "gauge", "Requests that wait in all queues of all lanes.", T),
    Family("llm_health_kv_cache_ratio", "gauge", "KV cache in use, 0 to 1, of the fullest lane.", T),
    Family("llm_health_gpu_ratio", "gauge", "GPU memory in use, 0 to 1, of the fullest GPU.", T),
    Family("llm_gpu_utilization_ratio", "gauge", "GPU utilisation, 0 to 1; high while spinning too.", T),
    Family("llm_gpu_power_watts", "gauge", "Power drawn by the target's GPUs together.", T),
    Family("llm_gpu_xid_fatal", "gauge", "1 if a fatal GPU error is current: a restart would not help.", T),
    Family(
        "llm_event_loop_lag_seconds",
        "gauge",
        "Largest delay of the server's event loop in the last 30 s, a block in progress included; from its heartbeat.",
        T,
    ),
    Family("llm_static_response_seconds", "gauge", "Round trip of the cheapest static endpoint.", T),
    Family("llm_native_health_status", "gauge", "HTTP code of the engine's own health endpoint, 0 = no answer.", T),
    Family("llm_native_health_seconds", "gauge", "Round trip of the engine's own health endpoint.", T),
    Family("llm_health_transitions_total", "counter", "Changes of state, by the new state.", (*T, "to")),
    Family("llm_engine_restarts_total", "counter", "Restarts of the process that were seen.", T),
    Family("llm_target_state_since_timestamp_seconds", "gauge", "Unix time since when the state holds.", T),
    Family("llm_target_start_timestamp_seconds", "gauge", "Unix time of the process's start, if it tells.", T),
    Family("llm_last_observation_timestamp_seconds", "gauge", "Unix time at which the last observation began.", T),
    Family("llm_observation_duration_seconds", "gauge", "How long the last observation took.", T),
    Family(
        "llm_observation_errors_total",
        "counter",
        "Looks that failed, by reason: refused, timeout, reset, dns, tls, noroute, other, http, unreadable, internal.",
        (*T, "reason"),
    ),
    Family(
        "llm_canary_requests_total",
        "counter",
        "Tiny requests of our own, by result: answered, silent, http, refused, reset, none.",
        (*T, "result"),
    ),
    Family("llm_canary_available", "gauge", "0 if the last canary could not confirm anything, else 1.", T),
    Family("llm_target_maintenance", "gauge", "1 while the configuration declares maintenance.", T),
    Family("llm_signals_missing", "gauge", "1 for a needed series that the target's page lacks.", (*T, "series")),
    Family(
        "llm_engine_first_token_requests_total",
        "counter",
        "Requests whose first token came within so many seconds, cumulative; from the engine's own histogram.",
        (*T, "within"),
    ),
    Family("llm_lane_state", "stateset", "State of one lane; exactly one is 1.", (*L, "llm_lane_state")),
    Family(
        "llm_engine_progress",
        "gauge",
        "1 = evidence moved, or nothing is held; 0 = work is held and flat beyond stalled_after, or stuck.",
        L,
    ),
    Family("llm_engine_last_progress_timestamp_seconds", "gauge", "Unix time at which evidence last moved.", L),
    Family("llm_engine_stalled_seconds", "gauge", "For how long held work has shown no progress.", L),
    Family("llm_engine_stuck_bound_seconds", "gauge", "For how long it may do so before it is stuck.", L),
    Family("llm_engine_steps_total", "counter", "The engine's own count of steps.", L),
    Family("llm_engine_tokens_total", "counter", "The engine's own count of tokens: prompt, generation.", (*L, "kind")),
    Family("llm_engine_requests", "gauge", "Requests held: running, waiting (all queues).", (*L, "state")),
    Family("llm_engine_preemptions_total", "counter", "The engine's own count of preemptions.", L),
    Family("llm_engine_finished_total", "counter", "The engine's own count of finished requests.", L),
)

OWN_FAMILIES: tuple[Family, ...] = (
    Family(
        "llm_exporter_build_info",
        "info",
        "Version of the exporter; external_url: where people reach its pages (--web.external-url), for links in alerts.",
        ("version", "external_url"),
    ),
    Family("llm_exporter_config_last_reload_successful", "gauge", "1 if the last reading of the configuration succeeded."),
    Family("llm_exporter_config_last_reload_success_timestamp_seconds", "gauge", "Unix time of the last successful one."),
    Family("llm_exporter_config_hash_info", "info", "Changes when the effective configuration does.", ("hash",)),
    Family("llm_exporter_targets", "gauge", "Targets that are watched."),
    Family("llm_exporter_loop_lag_seconds", "gauge", "Largest delay of the exporter's own event loop in the last 30 s."),
    Family("llm_exporter_late_observations_total", "counter", "Observations that came too late, or were dropped for it."),
    Family("llm_exporter_fail_open", "gauge", "1 while too many targets would fail `live` at once: all answer 200."),
    Family("llm_exporter_task_deaths_total", "counter", "Background tasks that ended and must not.", ("task",)),
    Family(
        "llm_exporter_discovery_up",
        "gauge",
        "1 if all of this source of targets was read at the last try, and could be used.",
        ("source",),
    ),
)

INDEX: dict[str, int] = {family.name: index for index, family in enumerate(TARGET_FAMILIES)}
