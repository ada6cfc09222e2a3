"""For every alert one world in which it fires and one near miss in which it must not."""

from __future__ import annotations

from rules.scenes import Scene, series, states

A = {"target": "a"}
LANE = {"target": "a", "lane": "0"}
EXPORTER = {"job": "llm-exporter", "instance": "exporter:10140"}
REMEDIATOR = {"job": "llm-remediator", "instance": "remediator:10141"}


def gauge(name: str, line: str, **labels: str) -> dict[str, str]:
    return {series(name, **labels): line}


def requests(waiting: str, running: str) -> dict[str, str]:
    return gauge("llm_engine_requests", waiting, **LANE, state="waiting") | gauge(
        "llm_engine_requests", running, **LANE, state="running"
    )


def first_tokens(in_time: str, all_: str) -> dict[str, str]:
    return gauge("llm_engine_first_token_requests_total", in_time, **A, within="10") | gauge(
        "llm_engine_first_token_requests_total", all_, **A, within="+Inf"
    )


def up(job: dict[str, str], line: str) -> dict[str, str]:
    return gauge("up", line, **job)


def build(line: str, **labels: str) -> dict[str, str]:
    return gauge("llm_exporter_build_info", line, **(labels or EXPORTER), version="1")


def mode(line: str, name: str = "act") -> dict[str, str]:
    return gauge("llm_remediation_mode_info", line, **REMEDIATOR, mode=name)


def remediation(name: str, line: str, **labels: str) -> dict[str, str]:
    return gauge(f"llm_remediation_{name}", line, **REMEDIATOR, **labels)


def replicas(*rates: int) -> dict[str, str]:
    """Targets `a`, `b` … of one model with these rates a second, and work waiting at each."""
    found: dict[str, str] = {}
    for name, rate in zip("abcde", rates, strict=False):
        found |= gauge("llm_engine_tokens_total", f"0..{rate * 3600}*1h", target=name, lane="0", kind="generation")
        found |= gauge("llm_target_info", "1*1h", target=name, model="m")
        found |= gauge("llm_health_queue_depth", "3*1h", target=name)
    return found


STATE = [
    Scene("LLMEngineStuck", states("busy*5m stuck*5m busy*5m", **A), fires=("5m", "10m"), silent=("4m45s", "11m15s")),
    Scene("LLMEngineStuck", states("busy*5m stalled*10m busy*5m", **A), why="stalled to the end is not stuck"),
    Scene(
        "LLMEngineStuck",
        states("busy*5m stuck*1m _*30s stuck*3m", **A),
        fires=("6m", "6m15s", "6m30s", "7m"),
        why="two failed scrapes do not resolve it",
    ),
    Scene(
        "LLMEngineStuck",
        states("busy*2m stuck*5m", **A) | gauge("llm_target_maintenance", "1*7m", **A),
        why="maintenance",
    ),
    Scene(
        "LLMEngineStuckUnattended",
        states("busy*5m stuck*15m", **A),
        fires=("15m", "19m"),
        silent=("14m30s",),
    ),
    Scene("LLMEngineStuckUnattended", states("busy*5m stuck*9m45s busy*5m", **A), why="restarted in time"),
    Scene(
        "LLMEngineStuckUnattended",
        states("busy*5m stuck*5m", **A) | remediation("latched", "0*6m 1*4m", **A) | mode("1*10m"),
        fires=("6m",),
        silent=("5m45s",),
        why="given up: a person is woken at once",
    ),
    Scene(
        "LLMEngineStuckUnattended",
        states("busy*5m stuck*5m", **A) | remediation("latched", "0*6m 1*4m", **A) | mode("1*10m", "observe"),
        why="a latch that observe mode only simulates",
    ),
    Scene(
        "LLMEngineStuckUnattended",
        states("busy*5m idle*5m", **A) | remediation("latched", "1*10m", **A) | mode("1*10m"),
        why="latched from before, and not stuck",
    ),
    Scene("LLMEngineStalled", states("busy*2m stalled*5m", **A), fires=("4m15s", "6m"), silent=("3m45s",)),
    Scene("LLMEngineStalled", states("busy*2m stalled*45s busy*5m", **A), why="one long step"),
    Scene(
        "LLMEngineStalledUnconfirmed",
        states("busy*2m stalled*20m", **A)
        | gauge("llm_engine_stalled_seconds", "0*2m 0..1200*20m", **LANE)
        | gauge("llm_engine_stuck_bound_seconds", "300*22m", **LANE),
        fires=("18m",),
        silent=("16m",),
    ),
    Scene(
        "LLMEngineStalledUnconfirmed",
        states("busy*2m stalled*14m busy*5m", **A)
        | gauge("llm_engine_stalled_seconds", "0*2m 0..840*14m 0*5m", **LANE)
        | gauge("llm_engine_stuck_bound_seconds", "900*21m", **LANE),
        why="a blind engine within its longer bound",
    ),
    Scene("LLMEngineFailed", states("busy*2m failed*5m", **A), fires=("4m15s",), silent=("3m45s",)),
    Scene("LLMEngineFailed", states("busy*2m failed*45s starting*5m", **A), why="it exited and was started by its policy"),
    Scene("LLMEngineStarved", states("busy*2m starved*5m", **A), fires=("3m15s",), silent=("2m45s",)),
    Scene(
        "LLMEngineStarved",
        states("busy*20m", **A) | gauge("llm_engine_preemptions_total", "0..900*20m", **LANE),
        why="preempts and works",
    ),
    Scene("LLMTargetDown", states("busy*2m down*5m", **A), fires=("4m15s",), silent=("3m45s",)),
    Scene("LLMTargetDown", states("busy*2m down*45s starting*5m", **A), why="a restart passes through down"),
    Scene("LLMTargetUnreachable", states("busy*2m unreachable*10m", **A), fires=("7m15s",), silent=("6m45s",)),
    Scene("LLMTargetUnreachable", states("busy*2m unreachable*3m busy*10m", **A), why="it came back"),
    Scene("LLMTargetUnknown", states("busy*2m unknown*15m", **A), fires=("12m15s",), silent=("11m45s",)),
    Scene(
        "LLMTargetUnknown",
        states("unknown*1m busy*1m unknown*1m busy*20m", **A),
        why="single looks that could not be judged",
    ),
    Scene(
        "LLMTargetUnknown",
        {**states("unknown*30m", target="p"), **gauge("llm_target_info", "1*30m", engine_kind="proxy", target="p")},
        why="a proxy has no engine's verdict, and is none the worse for it",
    ),
    Scene(
        "LLMTargetNotServing",
        states("busy*5m down*5m starting*3m down*5m starting*3m stuck*6m down*5m", **A),
        fires=("26m",),
        silent=("19m",),
        why="round and round, never long in one state",
    ),
    Scene("LLMTargetNotServing", states("busy*5m down*10m starting*30m idle*5m", **A), why="one long start"),
    Scene(
        "LLMTargetNotServing",
        states("down*14m30s busy*5m", **A),
        why="a new target, not yet watched for a quarter of an hour",
    ),
    Scene(
        "LLMTargetNotServing", states("down*30m", **A), fires=("26m",), silent=("14m",), why="a new target that never served"
    ),
    Scene("LLMStartupSlow", states("down*1m starting*45m", **A), fires=("31m", "45m"), silent=("30m30s",)),
    Scene("LLMStartupSlow", states("down*1m starting*29m30s idle*10m", **A), why="slow, and done"),
    Scene(
        "LLMSleepingWithWork",
        states("idle*2m sleeping*15m", **A) | requests("0*3m 4*14m", "0*17m"),
        fires=("13m30s",),
        silent=("12m30s",),
    ),
    Scene(
        "LLMSleepingWithWork",
        states("idle*2m sleeping*15m", **A) | requests("4*5m 0*12m", "0*17m"),
        why="the queue was drained",
    ),
    Scene(
        "LLMUnexpectedEngineRestart",
        gauge("llm_engine_restarts_total", "0*5m 1*20m", **A),
        fires=("5m15s",),
        silent=("4m45s", "21m"),
    ),
    Scene(
        "LLMUnexpectedEngineRestart",
        gauge("llm_engine_restarts_total", "0*5m 1*20m", **A)
        | remediation("last_restart_timestamp_seconds", "_*4m 240*21m", **A),
        why="the remediator did it",
    ),
    Scene(
        "LLMEngineCrashLoop",
        gauge("llm_engine_restarts_total", "0*10m 1*10m 2*10m 3*10m", **A),
        fires=("31m",),
        silent=("29m",),
    ),
    Scene(
        "LLMEngineCrashLoop",
        gauge("llm_engine_restarts_total", "0*10m 1*10m 2*10m 2*30m", **A),
        why="two restarts in an hour",
    ),
]

ENDPOINTS = [
    Scene(
        "LLMHealthEndpointLies",
        states("busy*2m stuck*5m", **A) | gauge("llm_native_health_status", "200*7m", **A),
        fires=("3m15s",),
        silent=("2m45s",),
    ),
    Scene(
        "LLMHealthEndpointLies",
        states("busy*2m stuck*5m", **A) | gauge("llm_native_health_status", "200*1m 503*6m", **A),
        why="/health says the truth",
    ),
    Scene(
        "LLMHealthEndpointFalseAlarm",
        states("busy*10m", **A) | gauge("llm_native_health_status", "200*2m 503*8m", **A),
        fires=("4m15s",),
        silent=("3m30s",),
    ),
    Scene(
        "LLMHealthEndpointFalseAlarm",
        states("busy*2m failed*8m", **A) | gauge("llm_native_health_status", "200*2m 503*8m", **A),
        why="it fails and is dead",
    ),
    Scene(
        "LLMHealthEndpointSlow",
        gauge("llm_native_health_seconds", "0.01*2m 3.5*10m", **A) | gauge("llm_engine_progress", "1*12m", **LANE),
        fires=("7m",),
        silent=("4m",),
    ),
    Scene(
        "LLMHealthEndpointSlow",
        gauge("llm_native_health_seconds", "1.0*12m", **A) | gauge("llm_engine_progress", "1*12m", **LANE),
        why="SGLang's /health always takes a second",
    ),
    Scene(
        "LLMEventLoopLag", gauge("llm_event_loop_lag_seconds", "0.01*2m 0.8*5m", **A), fires=("4m15s",), silent=("3m30s",)
    ),
    Scene(
        "LLMEventLoopLag", gauge("llm_event_loop_lag_seconds", "0.01*2m 0.8*45s 0.01*5m", **A), why="one block of a second"
    ),
    Scene("LLMEventLoopLag", gauge("llm_event_loop_lag_seconds", "0.4*10m", **A), why="below half a second"),
    Scene(
        "LLMStaticResponseSlow", gauge("llm_static_response_seconds", "0.02*2m 2*15m", **A), fires=("11m",), silent=("8m",)
    ),
    Scene(
        "LLMStaticResponseSlow", gauge("llm_static_response_seconds", "0.02*2m 2*2m 0.02*12m", **A), why="two slow minutes"
    ),
]

LOAD = [
    Scene("LLMQueueGrowing", gauge("llm_health_queue_depth", "0..120*30m", **A), fires=("20m",), silent=("9m",)),
    Scene(
        "LLMQueueGrowing",
        gauge("llm_health_queue_depth", "80*30m", **A),
        why="long and steady: a saturated server is not alarming",
    ),
    Scene(
        "LLMQueueWaitHigh",
        gauge("llm_health_queue_depth", "40*45m", **A) | gauge("llm_engine_finished_total", "0..1350*45m", **LANE),
        fires=("30m",),
        silent=("14m",),
    ),
    Scene(
        "LLMQueueWaitHigh",
        gauge("llm_health_queue_depth", "40*45m", **A) | gauge("llm_engine_finished_total", "0..5400*45m", **LANE),
        why="the same queue, two finished a second: 20 s",
    ),
    Scene("LLMAdmissionStalled", requests("0*2m 3*10m", "0*12m"), fires=("8m15s",), silent=("7m",)),
    Scene("LLMAdmissionStalled", requests("0*2m 487*10m", "12*12m"), why="a long queue behind full slots"),
    Scene(
        "LLMPreemptionStorm",
        gauge("llm_engine_preemptions_total", "0..2400*20m", **LANE)
        | gauge("llm_engine_finished_total", "0..60*20m", **LANE),
        fires=("8m",),
        silent=("4m",),
    ),
    Scene(
        "LLMPreemptionStorm",
        gauge("llm_engine_preemptions_total", "0..600*20m", **LANE)
        | gauge("llm_engine_finished_total", "0..1200*20m", **LANE),
        why="preempts less than it finishes",
    ),
    Scene(
        "LLMKvFullQueueing",
        gauge("llm_health_kv_cache_ratio", "0.995*20m", **A) | gauge("llm_health_queue_depth", "2*20m", **A),
        fires=("6m",),
        silent=("4m",),
    ),
    Scene(
        "LLMKvFullQueueing",
        gauge("llm_health_kv_cache_ratio", "0.995*20m", **A) | gauge("llm_health_queue_depth", "0*20m", **A),
        why="full and nobody waits",
    ),
    Scene(
        "LLMKvFullRunningLow",
        gauge("llm_health_kv_cache_ratio", "0.97*20m", **A) | requests("0*20m", "0*20m"),
        fires=("6m",),
        silent=("4m",),
    ),
    Scene(
        "LLMKvFullRunningLow",
        gauge("llm_health_kv_cache_ratio", "0.97*20m", **A) | requests("0*20m", "0*4m 1*30s 0*15m30s"),
        silent=("6m", "14m"),
        fires=("20m",),
        why="something ran within ten minutes",
    ),
    Scene(
        "LLMKvFullRunningLow",
        gauge("llm_health_kv_cache_ratio", "0.97*20m", **A) | requests("0*20m", "3*20m"),
        why="the blocks belong to what runs",
    ),
    Scene(
        "LLMGpuBusyNoTokens",
        gauge("llm_gpu_utilization_ratio", "1*30m", **A)
        | gauge("llm_engine_tokens_total", "0..9000*5m 9000*25m", **LANE, kind="generation"),
        fires=("17m",),
        silent=("14m",),
    ),
    Scene(
        "LLMGpuBusyNoTokens",
        gauge("llm_gpu_utilization_ratio", "1*30m", **A)
        | gauge("llm_engine_tokens_total", "0..9000*5m 9000*25m", **LANE, kind="generation")
        | gauge("llm_engine_tokens_total", "0..100*30m", **LANE, kind="prompt"),
        why="a long prefill",
    ),
    Scene(
        "LLMGpuIdleWithQueue",
        gauge("llm_gpu_utilization_ratio", "0.9*2m 0.01*13m", **A) | gauge("llm_health_queue_depth", "5*15m", **A),
        fires=("9m30s",),
        silent=("8m",),
    ),
    Scene(
        "LLMGpuIdleWithQueue",
        gauge("llm_gpu_utilization_ratio", "0.3*15m", **A) | gauge("llm_health_queue_depth", "5*15m", **A),
        why="a third busy is not idle",
    ),
    Scene("LLMGpuFatalError", gauge("llm_gpu_xid_fatal", "0*5m 1*5m", **A), fires=("5m",), silent=("4m45s",)),
    Scene("LLMGpuFatalError", gauge("llm_gpu_xid_fatal", "0*10m", **A), why="no error"),
    Scene(
        "LLMGpuMemoryHeldAfterExit",
        states("busy*2m down*15m", **A) | gauge("llm_health_gpu_ratio", "0.92*17m", **A),
        fires=("12m30s",),
        silent=("11m",),
    ),
    Scene(
        "LLMGpuMemoryHeldAfterExit",
        states("busy*2m down*15m", **A) | gauge("llm_health_gpu_ratio", "0.92*2m 0.02*15m", **A),
        why="the memory was given back",
    ),
    Scene(
        "LLMReplicaDivergence", replicas(20, 100, 110), fires=("30m",), silent=("9m",), labels={"target": "a", "model": "m"}
    ),
    Scene("LLMReplicaDivergence", replicas(40, 100, 110), why="slower, and above 30 % of the median"),
    Scene("LLMReplicaDivergence", replicas(20, 100), why="two replicas have no median"),
]

SLO = [
    Scene(
        "LLMFirstTokenBurnFast",
        first_tokens("0..3600*1h 3600..5000*1h", "0..3600*1h 3600..7200*1h"),
        fires=("1h30m",),
        silent=("59m",),
        step="1m",
    ),
    Scene(
        "LLMFirstTokenBurnFast", first_tokens("0..6840*2h", "0..7200*2h"), step="1m", why="5 % late is below both burn rates"
    ),
    Scene(
        "LLMFirstTokenBurnFast", first_tokens("0*2h", "0..60*2h"), step="1m", why="all late, but one request in two minutes"
    ),
    Scene(
        "LLMFirstTokenBurnSlow",
        first_tokens("0..169344*2d", "0..172800*2d"),
        fires=("30h",),
        silent=("45m",),
        step="5m",
        why="2 % late for days",
    ),
    Scene("LLMFirstTokenBurnSlow", first_tokens("0..171590*2d", "0..172800*2d"), step="5m", why="0.7 % late"),
]

JUDGE = [
    Scene("LLMCanaryCannotConfirm", gauge("llm_canary_available", "1*2m 0*15m", **A), fires=("12m15s",), silent=("11m30s",)),
    Scene("LLMCanaryCannotConfirm", gauge("llm_canary_available", "1*2m 0*4m 1*10m", **A), why="the key was mended"),
    Scene(
        "LLMSignalsMissing",
        gauge("llm_signals_missing", "0*2m 1*20m", **A, series="vllm:iteration_tokens_total"),
        fires=("17m15s",),
        silent=("16m30s",),
        labels={"target": "a", "series": "vllm:iteration_tokens_total"},
    ),
    Scene(
        "LLMSignalsMissing", gauge("llm_signals_missing", "1*5m 0*20m", **A, series="vllm:x"), why="absent while it started"
    ),
    Scene(
        "LLMPollStale",
        gauge("llm_last_observation_timestamp_seconds", "t*5m 285*10m", **A),
        fires=("8m",),
        silent=("7m30s",),
    ),
    Scene("LLMPollStale", gauge("llm_last_observation_timestamp_seconds", "t-90*15m", **A), why="a slow interval"),
    Scene(
        "LLMMaintenanceForgotten", gauge("llm_target_maintenance", "1*27h", **A), fires=("25h",), silent=("23h",), step="5m"
    ),
    Scene(
        "LLMMaintenanceForgotten", gauge("llm_target_maintenance", "0*5m 1*23h", **A), step="5m", why="began within the day"
    ),
]

OWN = {"job": "llm-exporter", "instance": "exporter:10140"}
EXPORTERS = [
    Scene(
        "LLMHealthExporterDown",
        up(EXPORTER, "1*5m 0*10m") | build("1*5m _*10m"),
        fires=("8m15s",),
        silent=("7m45s",),
        labels={"job": "llm-exporter"},
    ),
    Scene(
        "LLMHealthExporterDown",
        gauge("unrelated", "1*10m"),
        fires=("3m15s",),
        silent=("2m45s",),
        labels={},
        why="there never was one",
    ),
    Scene(
        "LLMHealthExporterDown", up(EXPORTER, "1*5m 0*2m30s 1*10m") | build("1*5m _*2m30s 1*10m"), why="restarted in between"
    ),
    Scene(
        "LLMHealthExporterDown",
        up(EXPORTER, "1*5m 0*15m")
        | build("1*5m _*15m")
        | up(EXPORTER | {"instance": "e2"}, "1*20m")
        | build("1*20m", **(EXPORTER | {"instance": "e2"})),
        why="the other one watches",
    ),
    Scene(
        "LLMHealthExporterReplicaDown",
        up(EXPORTER, "1*5m 0*15m")
        | build("1*5m _*15m")
        | up(EXPORTER | {"instance": "e2"}, "1*20m")
        | build("1*20m", **(EXPORTER | {"instance": "e2"})),
        fires=("11m15s",),
        silent=("10m",),
        labels=OWN,
    ),
    Scene(
        "LLMHealthExporterReplicaDown",
        up(EXPORTER, "1*5m 0*4m 1*10m") | build("1*5m _*4m 1*10m"),
        labels=OWN,
        why="a rolling update",
    ),
    Scene("LLMHealthExporterReplicaDown", up(EXPORTER, "1*5m 0*15m") | build("1*5m _*15m"), labels=OWN, why="the only one"),
    Scene(
        "LLMHealthConfigReloadFailed",
        gauge("llm_exporter_config_last_reload_successful", "1*2m 0*15m", **OWN),
        fires=("8m15s",),
        silent=("7m",),
        labels=OWN,
    ),
    Scene(
        "LLMHealthConfigReloadFailed",
        gauge("llm_exporter_config_last_reload_successful", "1*2m 0*4m 1*15m", **OWN),
        why="mended",
    ),
    Scene(
        "LLMHealthExporterOverloaded",
        gauge("llm_exporter_late_observations_total", "0..900*15m", **OWN),
        fires=("6m",),
        silent=("4m",),
        labels=OWN,
    ),
    Scene(
        "LLMHealthExporterOverloaded",
        gauge("llm_exporter_loop_lag_seconds", "0.01*2m 0.6*20m", **OWN),
        fires=("13m",),
        silent=("11m",),
        labels=OWN,
        why="its own loop lags",
    ),
    Scene(
        "LLMHealthExporterOverloaded",
        gauge("llm_exporter_late_observations_total", "0..30*15m", **OWN)
        | gauge("llm_exporter_loop_lag_seconds", "0.05*15m", **OWN),
        why="two late looks a minute",
    ),
    Scene(
        "LLMHealthExporterTaskDied",
        gauge("llm_exporter_task_deaths_total", "0*5m 1*15m", **OWN, task="poll"),
        fires=("5m15s",),
        silent=("4m45s",),
        labels=OWN | {"task": "poll"},
    ),
    Scene(
        "LLMHealthExporterTaskDied",
        gauge("llm_exporter_task_deaths_total", "_*5m 1*15m", **OWN, task="poll"),
        fires=("5m",),
        silent=("4m45s",),
        labels=OWN | {"task": "poll"},
        why="the series appears with the first death",
    ),
    Scene(
        "LLMHealthExporterTaskDied", gauge("llm_exporter_task_deaths_total", "0*20m", **OWN, task="poll"), why="none died"
    ),
    Scene(
        "LLMHealthDiscoveryFailed",
        gauge("llm_exporter_discovery_up", "1*2m 0*15m", **OWN, source="file:targets.json"),
        fires=("9m15s",),
        silent=("8m30s",),
        labels=OWN | {"source": "file:targets.json"},
    ),
    Scene(
        "LLMHealthDiscoveryFailed",
        gauge("llm_exporter_discovery_up", "1*2m 0*4m 1*10m", **OWN, source="docker"),
        why="read again",
    ),
    Scene(
        "LLMHealthFailOpen",
        gauge("llm_exporter_fail_open", "0*2m 1*5m", **OWN),
        fires=("3m15s",),
        silent=("2m45s",),
        labels=OWN,
    ),
    Scene("LLMHealthFailOpen", gauge("llm_exporter_fail_open", "0*10m", **OWN), why="closed"),
]

BY = {"job": "llm-remediator", "instance": "remediator:10141"}
REMEDIATION = [
    Scene(
        "LLMRemediatorDown",
        up(REMEDIATOR, "1*5m 0*15m") | mode("1*5m _*15m"),
        fires=("11m15s",),
        silent=("10m",),
        labels={"job": "llm-remediator"},
    ),
    Scene("LLMRemediatorDown", up(REMEDIATOR, "1*5m 0*4m 1*10m") | mode("1*5m _*4m 1*10m"), why="restarted in between"),
    Scene(
        "LLMRemediationInProgress",
        gauge("llm_up", "1*4m 0*2m 1*5m", **A) | remediation("in_progress", "0*4m 1*3m 0*4m", **A),
        fires=("4m", "7m"),
        silent=("3m45s", "8m15s"),
    ),
    Scene(
        "LLMRemediationInProgress",
        gauge("llm_up", "1*10m", **A) | remediation("in_progress", "1*10m", target="b"),
        why="another target's",
    ),
    Scene(
        "LLMRemediationFailed",
        remediation("actions_total", "0*5m 1*10m", **A, outcome="failed"),
        fires=("5m15s",),
        silent=("4m45s",),
        labels={"target": "a", "outcome": "failed"},
    ),
    Scene(
        "LLMRemediationFailed",
        remediation("actions_total", "_*20m 1*10m", **A, outcome="failed") | remediation("latched", "0*30m", **A),
        fires=("20m",),
        silent=("19m45s",),
        labels={"target": "a", "outcome": "failed"},
        why="the series appears with the first failure",
    ),
    Scene(
        "LLMRemediationFailed",
        remediation("actions_total", "0*5m 1*10m", **A, outcome="recovered")
        | remediation("actions_total", "0*5m 1*10m", **A, outcome="simulated")
        | remediation("actions_total", "3*15m", **A, outcome="failed"),
        why="recovered; the failures are old",
    ),
    Scene(
        "LLMRemediationFailed",
        remediation("actions_total", "2*5m _*30m 2*10m", **A, outcome="failed")
        | remediation("latched", "0*5m _*30m 0*10m", **A),
        why="old failures come back with the remediator, from its journal",
    ),
    Scene(
        "LLMRemediationUnverified",
        remediation("actions_total", "0*5m 1*10m", **A, outcome="recovered_unverified"),
        fires=("5m15s",),
        silent=("4m45s",),
    ),
    Scene(
        "LLMRemediationUnverified", remediation("actions_total", "0*5m 1*10m", **A, outcome="verified"), why="work was seen"
    ),
    Scene(
        "LLMRemediationLatched",
        remediation("latched", "0*5m 1*5m", **A) | mode("1*10m"),
        fires=("5m",),
        silent=("4m45s",),
    ),
    Scene(
        "LLMRemediationLatched",
        remediation("latched", "0*5m 1*5m", **A) | mode("1*10m", "observe"),
        why="observe mode simulates the latch: nobody is needed for that",
    ),
    Scene("LLMRemediationLatched", remediation("latched", "0*10m", **A), why="free"),
    Scene(
        "LLMRemediationSuppressed",
        states("busy*2m stuck*10m", **A) | remediation("next_gate_info", "1*12m", **A, gate="cooldown"),
        fires=("6m30s",),
        silent=("5m15s",),
    ),
    Scene(
        "LLMRemediationSuppressed",
        states("busy*2m stuck*10m", **A) | remediation("next_gate_info", "1*12m", **A, gate="none"),
        why="it will restart it",
    ),
    Scene(
        "LLMRemediationSuppressed",
        states("busy*2m stuck*10m", **A) | remediation("next_gate_info", "1*12m", **A, gate="in_flight"),
        why="it restarts it now",
    ),
    Scene("LLMRemediationForeignOwner", remediation("foreign_owner", "0*5m 1*5m", **A), fires=("5m",), silent=("4m45s",)),
    Scene(
        "LLMRemediationForeignOwner",
        remediation("foreign_owner", "0*10m", **A) | remediation("foreign_starts_total", "0*5m 1*5m", **A),
        why="one restart by a person",
    ),
    Scene(
        "LLMRemediationWrongContainer", remediation("wrong_container", "0*5m 1*5m", **A), fires=("5m",), silent=("4m45s",)
    ),
    Scene("LLMRemediationWrongContainer", remediation("wrong_container", "0*10m", **A), why="the right one"),
    Scene("LLMRemediationBudgetSpent", remediation("budget_remaining", "1*2m 0*15m", **A), fires=("8m15s",), silent=("7m",)),
    Scene("LLMRemediationBudgetSpent", remediation("budget_remaining", "3*2m 1*15m", **A), why="one is left"),
    Scene("LLMRemediationOverdue", remediation("in_progress", "0*2m 1*1h10m", **A), fires=("53m",), silent=("51m",)),
    Scene(
        "LLMRemediationOverdue", remediation("in_progress", "1*30m", **A), why="a new Prometheus has seen half an hour of it"
    ),
    Scene(
        "LLMRemediationOverdue",
        remediation("in_progress", "0*2m 1*35m 0*1h", **A),
        why="a model that loads for half an hour",
    ),
    Scene(
        "LLMRemediationPausedLong", remediation("paused", "0*2m 1*5h", **A), fires=("4h14m",), silent=("4h5m",), step="1m"
    ),
    Scene("LLMRemediationPausedLong", remediation("paused", "0*2m 1*2h 0*5h", **A), step="1m", why="two hours of work"),
    Scene(
        "LLMRemediationPausedLong", remediation("paused", "1*2h", **A), step="1m", why="a new Prometheus saw two hours of it"
    ),
    Scene(
        "LLMRemediationBreakerOpen",
        remediation("breaker_open", "0*2m 1*10m"),
        fires=("6m15s",),
        silent=("5m30s",),
        labels={"job": "llm-remediator"},
    ),
    Scene("LLMRemediationBreakerOpen", remediation("breaker_open", "0*2m 1*1m 0*10m"), why="closed again within a minute"),
    Scene(
        "LLMRemediationJournalUnwritable",
        remediation("journal_writable", "1*2m 0*10m"),
        fires=("5m15s",),
        silent=("4m30s",),
        labels=BY,
    ),
    Scene("LLMRemediationJournalUnwritable", remediation("journal_writable", "1*2m 0*1m 1*10m"), why="a short lock"),
    Scene(
        "LLMRemediationDockerDown",
        remediation("docker_up", "1*2m 0*10m", host="local"),
        fires=("7m15s",),
        silent=("6m30s",),
        labels={"job": "llm-remediator", "host": "local"},
    ),
    Scene(
        "LLMRemediationDockerDown", remediation("docker_up", "1*2m 0*2m 1*10m", host="local"), why="the daemon was upgraded"
    ),
    Scene(
        "LLMRemediationAlertmanagerUnreachable",
        remediation("alertmanager_up", "1*2m 0*15m", alertmanager="http://am:9093"),
        fires=("9m15s",),
        silent=("8m30s",),
        labels={"job": "llm-remediator", "alertmanager": "http://am:9093"},
    ),
    Scene(
        "LLMRemediationAlertmanagerUnreachable",
        remediation("alertmanager_up", "1*2m 0*4m 1*10m", alertmanager="x"),
        why="restarted",
    ),
    Scene(
        "LLMRemediationExporterUnreachable",
        remediation("exporter_up", "1*2m 0*15m"),
        fires=("9m15s",),
        silent=("8m30s",),
        labels=BY,
    ),
    Scene("LLMRemediationExporterUnreachable", remediation("exporter_up", "1*2m 0*4m 1*10m"), why="restarted"),
    Scene(
        "LLMRemediationReconcileStale",
        remediation("last_reconcile_timestamp_seconds", "t*5m 285*15m"),
        fires=("11m15s",),
        silent=("10m30s",),
        labels=BY,
    ),
    Scene("LLMRemediationReconcileStale", remediation("last_reconcile_timestamp_seconds", "t-120*20m"), why="a slow round"),
    Scene(
        "LLMRemediationWebhookRejected",
        remediation("webhook_requests_total", "0*5m 3*10m", code="401"),
        fires=("5m15s",),
        silent=("4m45s",),
        labels=BY | {"code": "401"},
    ),
    Scene("LLMRemediationWebhookRejected", remediation("webhook_requests_total", "0..50*15m", code="202"), why="accepted"),
    Scene(
        "LLMRemediationAlertsTruncated",
        remediation("webhook_truncated_alerts_total", "0*5m 7*10m"),
        fires=("5m15s",),
        silent=("4m45s",),
        labels=BY,
    ),
    Scene("LLMRemediationAlertsTruncated", remediation("webhook_truncated_alerts_total", "7*15m"), why="it was long ago"),
    Scene(
        "LLMRemediationNotifyFailed",
        remediation("notify_failures_total", "0*5m 1*10m"),
        fires=("5m15s",),
        silent=("4m45s",),
        labels=BY,
    ),
    Scene("LLMRemediationNotifyFailed", remediation("notify_failures_total", "2*15m"), why="old failures"),
    Scene(
        "LLMRemediationTaskDied",
        remediation("task_deaths_total", "0*5m 1*15m", task="worker"),
        fires=("5m15s",),
        silent=("4m45s",),
        labels=BY | {"task": "worker"},
    ),
    Scene("LLMRemediationTaskDied", remediation("task_deaths_total", "0*20m", task="worker"), why="none died"),
]

CASES = [*STATE, *ENDPOINTS, *LOAD, *SLO, *JUDGE, *EXPORTERS, *REMEDIATION]
