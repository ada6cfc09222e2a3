"""Brings the state into the metrics, at every look of the watchdog."""

from llm_heartbeat import health
from llm_heartbeat.metrics import Metrics
from llm_heartbeat.state import State
from llm_heartbeat.view import view_of

GAUGES = {
    "queue_depth": "llm_health_queue_depth",
    "kv_cache_ratio": "llm_health_kv_cache_ratio",
    "gpu_mem_ratio": "llm_health_gpu_ratio",
}


def export(state: State, metrics: Metrics) -> None:
    """Set every gauge that has a value, and bring counts up to date."""
    view = view_of(state)
    metrics.set("llm_event_loop_lag_seconds", view.lag)
    metrics.set("llm_event_loop_blocked_seconds", view.blocked)
    metrics.set("llm_event_loop_last_beat_timestamp_seconds", state.last_beat())
    reports = {endpoint: answer(view) for endpoint, answer in health.ENDPOINTS.items()}
    for endpoint, report in reports.items():
        metrics.set(f"llm_health_{endpoint}", float(report.good))
    for limit in view.limits:
        if limit.check in GAUGES:
            metrics.set(GAUGES[limit.check], limit.value)
        if limit.check == "queue_depth":
            metrics.set("llm_health_queue_limit", limit.limit)
    failing = {check for report in reports.values() for check in (*report.failed, *report.degraded)}
    for check in {check for report in reports.values() for check in report.details}:
        metrics.set("llm_health_check_failed", float(check in failing), check)
    metrics.set("llm_heartbeat_inflight_requests", view.inflight)
    for dependency in view.dependencies:
        metrics.set("llm_heartbeat_dependency_up", float(not dependency.down), dependency.name)
    metrics.show_faults()
    metrics.show_checks(tuple(state.dependencies.values()))
