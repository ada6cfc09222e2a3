"""Target: all evidence of one server."""

from __future__ import annotations

from grafana_dashboards.frame import annotation, dashboard, variable
from grafana_dashboards.panels import (
    Json,
    Query,
    bars,
    beside,
    code_mappings,
    flag_mappings,
    lines,
    stat,
    state_mappings,
    table,
    timeline,
)

SEL = 'job=~"$job",target=~"$target"'
REC = 'target=~"$target"'


def target() -> Json:
    """The dashboard."""
    return dashboard(
        "target",
        "Stuckproof / Target",
        "All evidence of one inference server, and what the remediator did about it.",
        [
            variable("job", "Job", "label_values(llm_up, job)"),
            variable("target", "Target", 'label_values(llm_up{job=~"$job"}, target)', several=False),
        ],
        [_verdict(), _held(), _evidence(), _hardware(), _server(), _canary(), _looks()],
        [
            annotation(
                "Restarts seen",
                f"max by (target) (changes(llm_engine_restarts_total{{{SEL}}}[1m])) > 0",
                "purple",
                "{{target}} restarted",
                "Seen by the exporter",
            ),
            annotation(
                "Remediator",
                "sum by (target, decision, reason) "
                f'(increase(llm_remediation_decisions_total{{decision=~"act|would_act|latch",{REC}}}[1m])) > 0',
                "red",
                "Remediator: {{decision}}",
                "{{reason}}",
            ),
        ],
    )


def _verdict() -> list[Json]:
    return [
        stat(
            "State",
            "The judge's verdict now.",
            Query(f"max by (target) (target:llm_health_state:code{{{REC}}})"),
            "none",
            state_mappings(),
            width=4,
            height=6,
        ),
        timeline(
            "State",
            "The judge's verdict over time. White: nobody looked.",
            [Query(f"max by (target) (target:llm_health_state:code{{{REC}}})")],
            state_mappings(),
            width=12,
            height=6,
        ),
        table(
            "What it is",
            "Engine, version and model as detected; prefill_blind: its counters do not move during a long prompt.",
            [
                (
                    "Known",
                    Query(f"max by (target, engine_kind, version, model, prefill_blind) (llm_target_info{{{SEL}}})"),
                    "none",
                    [],
                )
            ],
            width=8,
            height=6,
        ),
    ]


def _held() -> list[Json]:
    return [
        lines(
            "Held work",
            "Requests running and waiting, per lane; our own canary is not counted.",
            [Query(f"max by (lane, state) (llm_engine_requests{{{SEL}}})", "lane {{lane}} {{state}}")],
            "short",
            width=8,
        ),
        timeline(
            "Progress",
            "yes: evidence moved, or nothing is held. no: held work is flat beyond stalled_after. White: cannot be said.",
            [Query(f"min by (lane) (llm_engine_progress{{{SEL}}})", "lane {{lane}}")],
            flag_mappings("no", "yes", good=1),
            width=8,
        ),
        lines(
            "Time without progress and its bound",
            "When the first line crosses the second, one canary decides whether the engine is stuck.",
            [
                Query(f"max by (lane) (llm_engine_stalled_seconds{{{SEL}}})", "lane {{lane}} without progress"),
                Query(f"max by (lane) (llm_engine_stuck_bound_seconds{{{SEL}}})", "lane {{lane}} bound"),
            ],
            "s",
            width=8,
        ),
    ]


def _evidence() -> list[Json]:
    rate = "[$__rate_interval]"
    return [
        lines(
            "Tokens",
            "Tokens a second by kind, from the engine's own counters.",
            [Query(f"sum by (kind) (max by (lane, kind) (rate(llm_engine_tokens_total{{{SEL}}}{rate})))", "{{kind}}")],
            "short",
            width=6,
        ),
        lines(
            "Steps",
            "Engine steps a second; flat during a long prompt on some engines.",
            [Query(f"max by (lane) (rate(llm_engine_steps_total{{{SEL}}}{rate}))", "lane {{lane}}")],
            "short",
            width=6,
        ),
        lines(
            "Finished and preempted",
            "Requests a second. More preempted than finished is thrashing.",
            [
                Query(f"max by (lane) (rate(llm_engine_finished_total{{{SEL}}}{rate}))", "lane {{lane}} finished"),
                Query(f"max by (lane) (rate(llm_engine_preemptions_total{{{SEL}}}{rate}))", "lane {{lane}} preempted"),
            ],
            "reqps",
            width=6,
        ),
        lines(
            "KV cache",
            "Share in use, of the fullest lane. It moves during a prefill that the counters do not show.",
            [Query(f"max by (target) (llm_health_kv_cache_ratio{{{SEL}}})")],
            "percentunit",
            width=6,
            defaults={"max": 1},
        ),
    ]


def _hardware() -> list[Json]:
    tokens = f"sum by (target) (max by (target, lane, kind) (rate(llm_engine_tokens_total{{{SEL}}}[$__rate_interval])))"
    return [
        lines(
            "GPU memory",
            "Share of GPU memory in use. Engines reserve nearly all of it: high is normal.",
            [Query(f"max by (target) (llm_health_gpu_ratio{{{SEL}}})")],
            "percentunit",
            width=6,
            defaults={"max": 1},
        ),
        lines(
            "GPU utilisation and tokens",
            "Utilisation is 1 also while a kernel spins for nothing: high without tokens is no work.",
            [
                Query(f"max by (target) (llm_gpu_utilization_ratio{{{SEL}}})", "utilisation"),
                Query(tokens, "tokens a second"),
            ],
            "percentunit",
            width=6,
            overrides=beside("tokens a second", "short", "utilisation", "percentunit", 1),
        ),
        lines(
            "GPU power and tokens",
            "Watts of the target's GPUs together. Full utilisation at little power, and no tokens, is a spin.",
            [
                Query(f"max by (target) (llm_gpu_power_watts{{{SEL}}})", "power"),
                Query(tokens, "tokens a second"),
            ],
            "watt",
            width=6,
            overrides=beside("tokens a second", "short", "power", "watt"),
        ),
        lines(
            "Energy per token",
            "Joules a token: power divided by tokens a second. Nothing is drawn while no token comes.",
            [Query(f"max by (target) (llm_gpu_power_watts{{{SEL}}}) / on (target) ({tokens} > 0)")],
            "joule",
            width=6,
        ),
    ]


def _server() -> list[Json]:
    first = "llm_engine_first_token_requests_total"
    return [
        lines(
            "Event loop lag",
            "Largest delay of the API process's event loop within 30 s; needs llm_heartbeat.",
            [Query(f"max by (target) (llm_event_loop_lag_seconds{{{SEL}}})")],
            "s",
            width=6,
        ),
        lines(
            "Answers of cheap endpoints",
            "Round trips of the cheapest static endpoint and of the engine's own /health.",
            [
                Query(f"max by (target) (llm_static_response_seconds{{{SEL}}})", "static"),
                Query(f"max by (target) (llm_native_health_seconds{{{SEL}}})", "/health"),
            ],
            "s",
            width=6,
        ),
        timeline(
            "The engine's own /health",
            "HTTP code of the engine's own health endpoint.",
            [Query(f"max by (target) (llm_native_health_status{{{SEL}}})")],
            code_mappings(),
            width=6,
        ),
        lines(
            "First tokens",
            "Share of first tokens that came within 1 s and 10 s.",
            [
                Query(
                    f'max by (within) (rate({first}{{within!="+Inf",{SEL}}}[$__rate_interval])) '
                    f"/ on () group_left () "
                    f'max (rate({first}{{within="+Inf",{SEL}}}[$__rate_interval]) > 0)',
                    "within {{within}} s",
                )
            ],
            "percentunit",
            width=6,
            defaults={"max": 1},
        ),
    ]


def _canary() -> list[Json]:
    return [
        bars(
            "Canaries",
            "Tiny requests of our own by result. None is sent while work moves.",
            [Query(f"max by (result) (increase(llm_canary_requests_total{{{SEL}}}[$__rate_interval])) > 0", "{{result}}")],
            "short",
            width=8,
        ),
        timeline(
            "The canary can confirm",
            "no: the last one got an answer that proves nothing (401, 404, refused); a hang would stay stalled.",
            [Query(f"max by (target) (llm_canary_available{{{SEL}}})")],
            flag_mappings("no", "yes", good=1),
            width=8,
        ),
        bars(
            "Restarts seen",
            "Restarts of the engine's process, whoever made them.",
            [Query(f"max by (target) (increase(llm_engine_restarts_total{{{SEL}}}[$__rate_interval])) > 0")],
            "short",
            width=8,
        ),
    ]


def _looks() -> list[Json]:
    return [
        lines(
            "Duration of a look",
            "How long one observation takes: fetch, parse, judge.",
            [Query(f"max by (target) (llm_observation_duration_seconds{{{SEL}}})")],
            "s",
            width=8,
        ),
        bars(
            "Failed looks",
            "Looks that got no usable answer, by reason.",
            [
                Query(
                    f"max by (reason) (increase(llm_observation_errors_total{{{SEL}}}[$__rate_interval])) > 0", "{{reason}}"
                )
            ],
            "short",
            width=8,
        ),
        table(
            "What is missing, and which checks fail",
            "Needed series that its page lacks, and checks of live, ready and startup that fail now (1) or pass (0).",
            [
                (
                    "1 = yes",
                    Query(
                        f"max by (target, series) (llm_signals_missing{{{SEL}}}) "
                        f"or max by (target, check) (llm_health_check_failed{{{SEL}}})"
                    ),
                    "none",
                    [],
                )
            ],
            width=8,
        ),
    ]
