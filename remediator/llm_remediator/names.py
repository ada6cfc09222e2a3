"""Every metric of the remediator: one table, which the collector, the rules' tests and the docs read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric family. `name` is as exposed, with `_total` for counters."""

    name: str
    kind: Literal["counter", "gauge", "histogram", "info"]
    help: str
    labels: tuple[str, ...] = ()


DECISIONS = Metric(
    "llm_remediation_decisions_total",
    "counter",
    "Decisions by what was decided (act, would_act, skip, defer, awaiting_approval, latch) and the gate's reason.",
    ("target", "decision", "reason"),
)
ACTIONS = Metric(
    "llm_remediation_actions_total",
    "counter",
    "Restarts made or, in observe mode, simulated, by how they ended.",
    ("target", "outcome"),
)
IN_PROGRESS = Metric(
    "llm_remediation_in_progress",
    "gauge",
    "1 from the written intent to the verdict: errors of this target in that time are our restart's.",
    ("target",),
)
LATCHED = Metric("llm_remediation_latched", "gauge", "1 while only a person (or a long time) re-arms it.", ("target",))
AWAITING_APPROVAL = Metric(
    "llm_remediation_awaiting_approval",
    "gauge",
    "1 while everything speaks for a restart but a person, who was asked, has not approved it.",
    ("target",),
)
PAUSED = Metric("llm_remediation_paused", "gauge", "1 while paused, alone or with all targets.", ("target",))
BUDGET_REMAINING = Metric("llm_remediation_budget_remaining", "gauge", "Restarts left in the running window.", ("target",))
COOLDOWN_UNTIL = Metric(
    "llm_remediation_cooldown_until_timestamp_seconds",
    "gauge",
    "Unix time before which it is not restarted again; absent without a cooldown.",
    ("target",),
)
LAST_RESTART = Metric(
    "llm_remediation_last_restart_timestamp_seconds",
    "gauge",
    "Unix time of our last restart of it; absent before the first.",
    ("target",),
)
FOREIGN_STARTS = Metric(
    "llm_remediation_foreign_starts_total",
    "counter",
    "Starts of its container that we did not make, deployments excluded.",
    ("target",),
)
FOREIGN_OWNER = Metric(
    "llm_remediation_foreign_owner", "gauge", "1 while something else restarts it and we stand down.", ("target",)
)
WRONG_CONTAINER = Metric(
    "llm_remediation_wrong_container",
    "gauge",
    "1 if our restart was not seen at the target's address: the mapping in remediator.yml is wrong.",
    ("target",),
)
NEXT_GATE = Metric(
    "llm_remediation_next_gate_info",
    "gauge",
    "1 for the gate that would refuse a restart now; gate is none if none would.",
    ("target", "gate"),
)
DOWNTIME = Metric(
    "llm_remediation_downtime_seconds",
    "histogram",
    "Seconds from our restart until work was seen to flow again.",
    ("target",),
)
BREAKER_OPEN = Metric(
    "llm_remediation_breaker_open", "gauge", "1 while so many targets are ill that the cause must be shared."
)
MODE = Metric("llm_remediation_mode_info", "gauge", "1 for the mode in force: observe or act.", ("mode",))
JOURNAL_WRITABLE = Metric("llm_remediation_journal_writable", "gauge", "0 if nothing can be stored: it then only observes.")
LAST_RECONCILE = Metric(
    "llm_remediation_last_reconcile_timestamp_seconds",
    "gauge",
    "Unix time of the last full look at alerts, containers and targets.",
)
EXPORTER_UP = Metric("llm_remediation_exporter_up", "gauge", "1 if llm-exporter answered the last call.")
ALERTMANAGER_UP = Metric("llm_remediation_alertmanager_up", "gauge", "1 if it answered the last call.", ("alertmanager",))
DOCKER_UP = Metric("llm_remediation_docker_up", "gauge", "1 if the Docker host answered the last call in time.", ("host",))
NOTIFY_FAILURES = Metric("llm_remediation_notify_failures_total", "counter", "Notices that an endpoint did not take.")
WEBHOOK_REQUESTS = Metric(
    "llm_remediation_webhook_requests_total",
    "counter",
    "Requests to /api/v1/alerts by HTTP status; 401 means wrong credentials in Alertmanager.",
    ("code",),
)
WEBHOOK_TRUNCATED = Metric(
    "llm_remediation_webhook_truncated_alerts_total",
    "counter",
    "Alerts that Alertmanager left out of its webhooks (max_alerts).",
)
TASK_DEATHS = Metric("llm_remediation_task_deaths_total", "counter", "Background tasks that ended and must not.", ("task",))
BUILD_INFO = Metric("llm_remediation_build_info", "gauge", "1, with the version.", ("version",))

DOWNTIME_BUCKETS = (15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 2400.0, 3600.0)

ALL: tuple[Metric, ...] = (
    DECISIONS,
    ACTIONS,
    IN_PROGRESS,
    LATCHED,
    AWAITING_APPROVAL,
    PAUSED,
    BUDGET_REMAINING,
    COOLDOWN_UNTIL,
    LAST_RESTART,
    FOREIGN_STARTS,
    FOREIGN_OWNER,
    WRONG_CONTAINER,
    NEXT_GATE,
    DOWNTIME,
    BREAKER_OPEN,
    MODE,
    JOURNAL_WRITABLE,
    LAST_RECONCILE,
    EXPORTER_UP,
    ALERTMANAGER_UP,
    DOCKER_UP,
    NOTIFY_FAILURES,
    WEBHOOK_REQUESTS,
    WEBHOOK_TRUNCATED,
    TASK_DEATHS,
    BUILD_INFO,
)
