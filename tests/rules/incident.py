"""A simulated incident of 45 minutes: what exporter and remediator would serve at each moment, every family of theirs.

Targets: `hangs` (stuck at 15 m, restarted at 16 m, works again at 19 m), `full` (saturated and healthy all the time),
`sleeps` (idle, put to sleep at 30 m), `blind` (unknown until 5 m, then idle), `broken` (failed at 8 m; its restart does not
help; latched at 28 m). Times are seconds of the incident.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from rules.scenes import STATES

MINUTES = 60.0
END = 45 * MINUTES

PATHS: dict[str, tuple[tuple[float, str], ...]] = {
    "hangs": ((0, "busy"), (10.5, "stalled"), (15, "stuck"), (16, "down"), (16.75, "starting"), (19, "busy")),
    "full": ((0, "busy"),),
    "sleeps": ((0, "idle"), (30, "sleeping")),
    "blind": ((0, "unknown"), (5, "idle")),
    "broken": ((0, "busy"), (8, "failed"), (12, "down"), (12.5, "starting"), (15, "failed")),
}
LABELS = {"hangs": "core", "full": "core", "sleeps": "search", "blind": "search", "broken": "core"}
JUDGED = {"idle", "busy", "stalled", "stuck", "starved"}


@dataclass(frozen=True)
class Sample:
    """One exposed sample, its type known from the tables."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


def state_at(target: str, t: float) -> tuple[str, float]:
    """The state, and since when."""
    since, state = [p for p in PATHS[target] if p[0] * MINUTES <= t][-1]
    return state, since * MINUTES


def worked(target: str, t: float) -> float:
    """Seconds of real work since the process's last start: what its counters count."""
    total = 0.0
    path = [*PATHS[target], (END / MINUTES, "")]
    for (begin, state), (end, _) in pairwise(path):
        if begin * MINUTES > t:
            break
        if state == "starting":
            total = 0.0
        if state == "busy":
            total += min(end * MINUTES, t) - begin * MINUTES
    return total


def exporter(t: float, stamp: Callable[[float], float]) -> Iterator[Sample]:
    """The exporter's samples at `t`; `stamp` turns a moment of the incident into Unix time."""
    for name in PATHS:
        yield from _target(name, t, stamp)
    yield _sample("llm_exporter_build_info", 1, version="1", external_url="https://llm.example")
    for name, value in {
        "llm_exporter_config_last_reload_successful": 1,
        "llm_exporter_config_last_reload_success_timestamp_seconds": stamp(0),
        "llm_exporter_targets": len(PATHS),
        "llm_exporter_loop_lag_seconds": 0.004,
        "llm_exporter_late_observations_total": 0,
        "llm_exporter_fail_open": 0,
    }.items():
        yield _sample(name, value)
    yield _sample("llm_exporter_config_hash_info", 1, hash="abc")
    yield _sample("llm_exporter_task_deaths_total", 0, task="monitor")
    yield _sample("llm_exporter_discovery_up", 1, source="file")


def _target(name: str, t: float, stamp: Callable[[float], float]) -> Iterator[Sample]:
    state, since = state_at(name, t)
    answers = state not in {"down", "unreachable"}
    restarted = max((m * MINUTES for m, s in PATHS[name] if s == "starting" and m * MINUTES <= t), default=None)

    def one(metric: str, value: float, **labels: str) -> Sample:
        return _sample(metric, value, target=name, **labels)

    for each in STATES:
        yield one("llm_health_state", each == state, llm_health_state=each)
    yield one("llm_target_info", 1, engine_kind="vllm", version="0.11", model="m", prefill_blind="false", team=LABELS[name])
    yield one("llm_up", answers)
    yield one("llm_health_live", state != "stuck")
    yield one("llm_health_ready", state in {"idle", "busy", "stalled"})
    yield one("llm_health_check_failed", state == "stuck", check="engine")
    yield one("llm_health_transitions_total", sum(m * MINUTES <= t for m, _ in PATHS[name]), to=state)
    yield one("llm_engine_restarts_total", restarted is not None)
    yield one("llm_target_state_since_timestamp_seconds", stamp(since))
    yield one("llm_last_observation_timestamp_seconds", stamp(t - 2))
    yield one("llm_observation_duration_seconds", 0.012)
    yield one("llm_observation_errors_total", 12 * _seconds_in(name, t, "down") / 60, reason="refused")
    yield one("llm_target_maintenance", 0)
    yield one("llm_canary_requests_total", 1 if name == "hangs" and t >= 15 * MINUTES else 0, result="silent")
    yield one("llm_canary_requests_total", t // 900, result="answered")
    yield one("llm_canary_available", 1)
    yield one("llm_native_health_status", 0 if not answers else 503 if state in {"failed", "starting"} else 200)
    yield one("llm_gpu_utilization_ratio", 0.97 if state in {"busy", "stalled", "stuck"} else 0.0)
    yield one("llm_gpu_power_watts", 640 if state == "busy" else 180 if state in {"stalled", "stuck"} else 90)
    yield one("llm_gpu_xid_fatal", 0)
    yield one("llm_health_gpu_ratio", 0.92 if answers else 0.03)
    if answers:
        yield one("llm_target_start_timestamp_seconds", stamp(restarted if restarted is not None else -3600))
        yield one("llm_native_health_seconds", 0.004)
        yield one("llm_static_response_seconds", 0.006)
    if answers and state != "starting":
        yield one("llm_signals_missing", name == "blind" and state == "unknown", series="vllm:iteration_tokens_total")
    if state in JUDGED:
        yield from _lane(name, state, since, t, stamp)


def _lane(name: str, state: str, since: float, t: float, stamp: Callable[[float], float]) -> Iterator[Sample]:
    flat = state in {"stalled", "stuck"}
    stalled = t - 10 * MINUTES if flat else 0.0
    work = worked(name, t)
    waiting, running = {"full": (40, 12), "hangs": (9, 4)}.get(name, (0, 0)) if state != "idle" else (0, 0)

    def one(metric: str, value: float, **labels: str) -> Sample:
        return _sample(metric, value, target=name, **labels)

    yield one("llm_event_loop_lag_seconds", 0.03)
    yield one("llm_health_queue_depth", waiting)
    yield one("llm_health_kv_cache_ratio", 0.97 if name == "full" else 0.4 if running else 0.0)
    for within, share in (("1", 0.6), ("10", 0.998), ("+Inf", 1.0)):
        yield one("llm_engine_first_token_requests_total", round(work * 2 * share), within=within)
    for each in STATES:
        yield one("llm_lane_state", each == state, lane="0", llm_lane_state=each)
    yield one("llm_engine_progress", not flat, lane="0")
    yield one("llm_engine_last_progress_timestamp_seconds", stamp(10 * MINUTES if flat else t), lane="0")
    yield one("llm_engine_stalled_seconds", stalled, lane="0")
    yield one("llm_engine_stuck_bound_seconds", 300, lane="0")
    yield one("llm_engine_steps_total", round(work * 30), lane="0")
    yield one("llm_engine_tokens_total", round(work * 500), lane="0", kind="generation")
    yield one("llm_engine_tokens_total", round(work * 900), lane="0", kind="prompt")
    yield one("llm_engine_requests", running, lane="0", state="running")
    yield one("llm_engine_requests", waiting, lane="0", state="waiting")
    yield one("llm_engine_preemptions_total", round(work * 0.05), lane="0")
    yield one("llm_engine_finished_total", round(work * 2), lane="0")


def _seconds_in(name: str, t: float, wanted: str) -> float:
    path = [*PATHS[name], (END / MINUTES, "")]
    return sum(
        max(0.0, min(end * MINUTES, t) - begin * MINUTES) for (begin, state), (end, _) in pairwise(path) if state == wanted
    )


ACTS = {"hangs": (16.0, 19.5, "verified"), "broken": (12.0, 28.0, "failed")}
"""Target -> minute of its restart, of the verdict, and the outcome."""


def remediator(t: float, stamp: Callable[[float], float]) -> Iterator[Sample]:
    """The remediator's samples at `t`."""
    minute = t / MINUTES
    for name in PATHS:
        yield from _remedy(name, minute, stamp)
    for mode in ("observe", "act"):
        yield _sample("llm_remediation_mode_info", mode == "act", mode=mode)
    for metric, value in {
        "breaker_open": 0,
        "journal_writable": 1,
        "last_reconcile_timestamp_seconds": stamp(t - 4),
        "exporter_up": 1,
        "notify_failures_total": 0,
        "webhook_truncated_alerts_total": 0,
    }.items():
        yield _sample(f"llm_remediation_{metric}", value)
    yield _sample("llm_remediation_alertmanager_up", 1, alertmanager="http://alertmanager:9093")
    yield _sample("llm_remediation_docker_up", 1, host="local")
    yield _sample("llm_remediation_task_deaths_total", 0, task="worker")
    yield _sample("llm_remediation_build_info", 1, version="1")
    for code, count in (("202", 1 + minute // 1), ("400", 0), ("401", 0), ("503", 0)):
        yield _sample("llm_remediation_webhook_requests_total", count, code=code)


def _remedy(name: str, minute: float, stamp: Callable[[float], float]) -> Iterator[Sample]:
    def one(metric: str, value: float, **labels: str) -> Sample:
        return _sample(f"llm_remediation_{metric}", value, target=name, **labels)

    began, ended, outcome = ACTS.get(name, (1e9, 1e9, ""))
    acted, over = minute >= began, minute >= ended
    latched = outcome == "failed" and over
    ill = state_at(name, minute * MINUTES)[0] in {"stuck", "failed", "down"}
    gate = "in_flight" if acted and not over else "latched" if latched else "none" if ill else "alert"
    yield one("in_progress", acted and not over)
    yield one("latched", latched)
    yield one("paused", name == "sleeps" and 30 <= minute < 40)
    yield one("budget_remaining", 2 if acted else 3)
    yield one("foreign_owner", 0)
    yield one("wrong_container", 0)
    yield one("foreign_starts_total", name == "full" and minute >= 20)
    yield one("next_gate_info", 1, gate=gate)
    if acted:
        yield one("last_restart_timestamp_seconds", stamp(began * MINUTES))
        yield one("cooldown_until_timestamp_seconds", stamp((began + (600 if outcome == "failed" else 60)) * MINUTES))
    yield one("decisions_total", acted, decision="act", reason="proven")
    yield one("decisions_total", max(0.0, minute - began) // 1, decision="defer", reason="cooldown")
    for each in ("verified", "failed"):
        yield one("actions_total", over and outcome == each, outcome=each)
    seconds = (ended - began) * MINUTES
    for le in ("60.0", "300.0", "1200.0", "+Inf"):
        yield one("downtime_seconds_bucket", over and outcome == "verified" and seconds <= float(le), le=le)
    yield one("downtime_seconds_count", over and outcome == "verified")
    yield one("downtime_seconds_sum", seconds if over and outcome == "verified" else 0)


def _sample(name: str, value: float, **labels: str) -> Sample:
    return Sample(name, tuple(labels.items()), float(value))


def render(sample: Sample, at: float | None = None, **more: str) -> str:
    """One line of the text format, with a timestamp in seconds if `at` is given."""
    labels = ",".join(f'{k}="{v}"' for k, v in (*sample.labels, *more.items()))
    stamp = f" {at:.3f}" if at is not None else ""
    return f"{sample.name}{{{labels}}} {sample.value!r}{stamp}"
