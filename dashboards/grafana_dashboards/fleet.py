"""Fleet: every target at a glance, and what its own /health says beside what we say."""

from __future__ import annotations

from grafana_dashboards.frame import UIDS, annotation, dashboard, variable
from grafana_dashboards.panels import (
    Json,
    Query,
    bars,
    code_mappings,
    flag_mappings,
    lines,
    stat,
    state_colours,
    state_mappings,
    table,
    timeline,
)

SEL = 'job=~"$job",target=~"$target"'
REC = 'target=~"$target"'
OF_FIELD = {"title": "Open the target", "url": f"/d/{UIDS['target']}?var-target=${{__field.labels.target}}"}
OF_ROW = {"title": "Open the target", "url": f"/d/{UIDS['target']}?var-target=${{__data.fields.target}}"}


def fleet() -> Json:
    """The dashboard."""
    return dashboard(
        "fleet",
        "Stuckproof / Fleet",
        "State of every inference server, from the evidence that it publishes.",
        [
            variable("job", "Job", "label_values(llm_up, job)"),
            variable("target", "Target", 'label_values(llm_up{job=~"$job"}, target)'),
        ],
        [_now(), _states(), _work(), _progress(), _latency()],
        [
            annotation(
                "Restarts",
                f"max by (target) (changes(llm_engine_restarts_total{{{SEL}}}[1m])) > 0",
                "purple",
                "{{target}} restarted",
                "Seen by the exporter",
            )
        ],
    )


def _now() -> list[Json]:
    return [
        stat(
            "Targets by state",
            "How many targets are in each state now. A state without targets is not shown.",
            Query("sum by (llm_health_state) (state:llm_health_state:count)", "{{llm_health_state}}"),
            "short",
            overrides=state_colours(),
            width=8,
            height=6,
        ),
        table(
            "What /health says and what we say",
            "State by evidence, HTTP code of the engine's own health endpoint, and progress. "
            "200 beside stuck: probes on /health are blind. 503 beside busy: probes on /health kill a healthy server.",
            [
                ("State", Query(f"max by (target) (target:llm_health_state:code{{{REC}}})"), "none", state_mappings()),
                ("/health", Query(f"max by (target) (llm_native_health_status{{{SEL}}})"), "none", code_mappings()),
                (
                    "Progress",
                    Query(f"min by (target) (llm_engine_progress{{{SEL}}})"),
                    "none",
                    flag_mappings("no", "yes", good=1),
                ),
                (
                    "In this state",
                    Query(f"time() - max by (target) (llm_target_state_since_timestamp_seconds{{{SEL}}})"),
                    "s",
                    [],
                ),
            ],
            links=[OF_ROW],
            width=16,
            height=6,
        ),
    ]


def _states() -> list[Json]:
    return [
        timeline(
            "State per target",
            "The judge's verdict. White: nothing is known, because nobody looked.",
            [Query(f"max by (target) (target:llm_health_state:code{{{REC}}})")],
            state_mappings(),
            links=[OF_FIELD],
            width=12,
            height=10,
        ),
        timeline(
            "The engine's own /health",
            "HTTP code of the engine's own health endpoint; compare with the states on the left.",
            [Query(f"max by (target) (llm_native_health_status{{{SEL}}})")],
            code_mappings(),
            links=[OF_FIELD],
            width=12,
            height=10,
        ),
    ]


def _work() -> list[Json]:
    return [
        lines(
            "Queue",
            "Requests that wait. A long queue alone is load, not illness.",
            [Query(f"max by (target) (llm_health_queue_depth{{{SEL}}})")],
            "short",
            width=8,
        ),
        lines(
            "Running",
            "Requests in a slot, all lanes. Some engines keep this above zero after all clients left.",
            [Query(f'sum by (target) (target:llm_engine_requests:sum{{state="running",{REC}}})')],
            "short",
            width=8,
        ),
        lines(
            "KV cache",
            "Share of the KV cache in use, of the fullest lane.",
            [Query(f"max by (target) (llm_health_kv_cache_ratio{{{SEL}}})")],
            "percentunit",
            width=8,
            defaults={"max": 1},
        ),
    ]


def _progress() -> list[Json]:
    return [
        lines(
            "Tokens",
            "Prompt and generated tokens a second, over five minutes.",
            [Query(f"sum by (target) (target:llm_engine_tokens:rate5m{{{REC}}})")],
            "short",
            width=8,
        ),
        lines(
            "Age of the last progress",
            "Since when no evidence moved, of the laggard lane. It grows in idleness too: read it with the state.",
            [Query(f"time() - min by (target) (llm_engine_last_progress_timestamp_seconds{{{SEL}}})")],
            "s",
            width=8,
        ),
        bars(
            "Restarts seen",
            "Restarts of engine processes, whoever made them.",
            [Query(f"max by (target) (increase(llm_engine_restarts_total{{{SEL}}}[$__rate_interval])) > 0")],
            "short",
            width=8,
        ),
    ]


def _latency() -> list[Json]:
    return [
        lines(
            "Late first tokens",
            "Share of requests whose first token took over 10 s, five minutes. The objective is 1 %.",
            [Query(f"max by (target) (target:llm_first_token_late:ratio_rate5m{{{REC}}})")],
            "percentunit",
            width=8,
        ),
        lines(
            "Event loop lag",
            "Largest delay of the API process's event loop; needs llm_heartbeat in the server.",
            [Query(f"max by (target) (llm_event_loop_lag_seconds{{{SEL}}})")],
            "s",
            width=8,
        ),
        table(
            "Firing alerts",
            "Alerts of these rules that fire now.",
            [
                (
                    "Fires",
                    Query('max by (alertname, severity, target) (ALERTS{alertstate="firing",alertname=~"LLM.+"})'),
                    "none",
                    [],
                )
            ],
            width=8,
        ),
    ]
