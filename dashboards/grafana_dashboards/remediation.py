"""Remediation: what the remediator decided and why, what it may still do, and what came of it."""

from __future__ import annotations

from grafana_dashboards.frame import annotation, dashboard, variable
from grafana_dashboards.panels import Json, Query, bars, flag_mappings, lines, stat, table, timeline

# A name of its own: the links between dashboards carry variables along, and the exporter's job is another one.
SEL = 'job=~"$remediator_job",target=~"$target"'
OWN = 'job=~"$remediator_job"'


def remediation() -> Json:
    """The dashboard."""
    return dashboard(
        "remediation",
        "Stuckproof / Remediation",
        "Decisions of the remediator by reason, cooldowns, budgets, latches, and downtime.",
        [
            variable("remediator_job", "Job", "label_values(llm_remediation_mode_info, job)"),
            variable("target", "Target", 'label_values(llm_remediation_latched{job=~"$remediator_job"}, target)'),
        ],
        [_itself(), _may(), _decisions(), _outcomes(), _plumbing()],
        [
            annotation(
                "Acts",
                "sum by (target, decision, reason) "
                f'(increase(llm_remediation_decisions_total{{decision=~"act|latch",{SEL}}}[1m])) > 0',
                "red",
                "{{target}}: {{decision}}",
                "{{reason}}",
            )
        ],
    )


def _itself() -> list[Json]:
    return [
        stat(
            "Mode",
            "observe decides and touches nothing; act restarts.",
            Query(f"max by (mode) (llm_remediation_mode_info{{{OWN}}}) == 1", "{{mode}}"),
            "none",
            text="name",
            width=4,
            height=5,
        ),
        stat(
            "Breaker",
            "open: so many targets are ill that the cause must be shared; nothing is restarted.",
            Query(f"max(llm_remediation_breaker_open{{{OWN}}})", "breaker"),
            "none",
            flag_mappings("closed", "open", good=0),
            width=4,
            height=5,
        ),
        stat(
            "Journal",
            "Without its journal it restarts nothing.",
            Query(f"min(llm_remediation_journal_writable{{{OWN}}})", "journal"),
            "none",
            flag_mappings("not writable", "writable", good=1),
            width=4,
            height=5,
        ),
        stat(
            "Last round",
            "Age of the last full look at alerts, containers and targets; normal is below 30 s.",
            Query(f"time() - max(llm_remediation_last_reconcile_timestamp_seconds{{{OWN}}})", "age"),
            "s",
            width=4,
            height=5,
        ),
        timeline(
            "What it needs",
            "Exporter, Docker hosts and Alertmanagers that answer it. Without one of them it does not act.",
            [
                Query(f"min by (job) (llm_remediation_exporter_up{{{OWN}}})", "exporter"),
                Query(f"min by (host) (llm_remediation_docker_up{{{OWN}}})", "docker {{host}}"),
                Query(f"min by (alertmanager) (llm_remediation_alertmanager_up{{{OWN}}})", "{{alertmanager}}"),
            ],
            flag_mappings("no answer", "answers", good=1),
            width=8,
            height=5,
        ),
    ]


def _may() -> list[Json]:
    flag = flag_mappings("no", "yes", good=0)
    return [
        table(
            "Now",
            "Per target: the gate that would refuse a restart now (none: it would be restarted if it were stuck), "
            "restarts left, cooldown left, latch, time since our last restart.",
            [
                ("Gate", Query(f"max by (target, gate) (llm_remediation_next_gate_info{{{SEL}}})"), "none", []),
                ("Restarts left", Query(f"min by (target) (llm_remediation_budget_remaining{{{SEL}}})"), "short", []),
                (
                    "Cooldown left",
                    Query(f"max by (target) (llm_remediation_cooldown_until_timestamp_seconds{{{SEL}}}) - time() > 0"),
                    "s",
                    [],
                ),
                ("Latched", Query(f"max by (target) (llm_remediation_latched{{{SEL}}})"), "none", flag),
                (
                    "Last restart",
                    Query(f"time() - max by (target) (llm_remediation_last_restart_timestamp_seconds{{{SEL}}})"),
                    "s",
                    [],
                ),
            ],
            width=12,
        ),
        timeline(
            "In progress",
            "From the written intent to the verdict: errors of the target in that time are our restart's.",
            [Query(f"max by (target) (llm_remediation_in_progress{{{SEL}}})")],
            flag_mappings("no", "restarting", good=0),
            width=6,
        ),
        timeline(
            "Latched or paused",
            "No attempts: until a person re-arms (latched), or until the pause ends (paused).",
            [
                Query(f"max by (target) (llm_remediation_latched{{{SEL}}})", "{{target}} latched"),
                Query(f"max by (target) (llm_remediation_paused{{{SEL}}})", "{{target}} paused"),
            ],
            flag,
            width=6,
        ),
    ]


def _decisions() -> list[Json]:
    return [
        bars(
            "Decisions by reason",
            "Every time the gates ran: what was decided, and the gate that decided.",
            [
                Query(
                    f"sum by (decision, reason) (increase(llm_remediation_decisions_total{{{SEL}}}[$__rate_interval])) > 0",
                    "{{decision}}: {{reason}}",
                )
            ],
            "short",
            width=12,
        ),
        table(
            "Decisions of the last hour",
            "Per target, decision and reason.",
            [
                (
                    "Times",
                    Query(
                        "sum by (target, decision, reason) "
                        '(target:llm_remediation_decisions:increase1h{target=~"$target"}) > 0'
                    ),
                    "short",
                    [],
                )
            ],
            width=12,
        ),
    ]


def _outcomes() -> list[Json]:
    bucket = f"sum by (le) (increase(llm_remediation_downtime_seconds_bucket{{{SEL}}}[$__range]))"
    return [
        bars(
            "Restarts by outcome",
            "How restarts ended; simulated ones are observe mode's.",
            [
                Query(
                    f"sum by (outcome) (increase(llm_remediation_actions_total{{{SEL}}}[$__rate_interval])) > 0",
                    "{{outcome}}",
                )
            ],
            "short",
            width=8,
        ),
        stat(
            "Downtime, median",
            "From our restart until work was seen to flow again, in the chosen time. Coarse: it is read from buckets.",
            Query(f"histogram_quantile(0.5, {bucket})", "median"),
            "s",
            width=4,
        ),
        stat(
            "Downtime, 95 %",
            "19 of 20 restarts of the chosen time took less than this.",
            Query(f"histogram_quantile(0.95, {bucket})", "95 %"),
            "s",
            width=4,
        ),
        lines(
            "Budget",
            "Restarts left in the running window. Every start of the container counts, whoever made it.",
            [Query(f"min by (target) (llm_remediation_budget_remaining{{{SEL}}})")],
            "short",
            width=8,
        ),
    ]


def _plumbing() -> list[Json]:
    return [
        bars(
            "Starts by others",
            "Starts of a target's container that the remediator did not make.",
            [Query(f"max by (target) (increase(llm_remediation_foreign_starts_total{{{SEL}}}[$__rate_interval])) > 0")],
            "short",
            width=8,
        ),
        bars(
            "Webhooks by answer",
            "202: stored. 401: the token differs. 400 and 413: not Alertmanager's. 503: the journal cannot be written.",
            [
                Query(
                    f"sum by (code) (increase(llm_remediation_webhook_requests_total{{{OWN}}}[$__rate_interval])) > 0",
                    "{{code}}",
                )
            ],
            "short",
            width=8,
        ),
        lines(
            "Notices not delivered",
            "Messages to the notify URL that it did not take, since the remediator's start.",
            [Query(f"max by (job) (increase(llm_remediation_notify_failures_total{{{OWN}}}[$__rate_interval]))", "{{job}}")],
            "short",
            width=8,
        ),
    ]
