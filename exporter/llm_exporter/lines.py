"""Sample lines of one target, rendered once per look; `/metrics` only joins them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from llm_exporter.judge import WORST_FIRST, State
from llm_exporter.names import INDEX, TARGET_FAMILIES
from llm_exporter.snapshot import Checks, Snapshot

Lines = tuple[str, ...]
STATES = tuple(State)
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
FIRST_TOKEN_BOUNDS = ((1.0, "1"), (10.0, "10"), (math.inf, "+Inf"))


def quoted(text: str) -> str:
    """A label value in the text format; what no encoding has (half a surrogate pair from somebody's JSON) becomes ``?``."""
    if not text.isascii():
        text = text.encode(errors="replace").decode()
    return f'"{text.translate(_ESCAPES)}"'


def number(value: float) -> str:
    """A sample's value in the text format."""
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 1e15:
            return str(int(value))
        return repr(value) if math.isfinite(value) else {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
    return str(int(value))


class _Page:
    """Collects the lines of one target by family."""

    def __init__(self, name: str) -> None:
        self._target = f"target={quoted(name)}"
        self._lines: list[list[str]] = [[] for _ in TARGET_FAMILIES]

    def add(self, family: str, value: float | bool | None, *labels: tuple[str, str]) -> None:
        """One sample; None is absent."""
        if value is None:
            return
        rest = "".join([f",{key}={quoted(text)}" for key, text in labels]) if labels else ""
        self._lines[INDEX[family]].append(f"{family}{{{self._target}{rest}}} {number(value)}\n")

    def states(self, family: str, current: State, among: tuple[State, ...], *labels: tuple[str, str]) -> None:
        """A StateSet: one line per state, exactly one is 1."""
        rest = "".join(f",{key}={quoted(text)}" for key, text in labels)
        self._lines[INDEX[family]].append(_states(family, self._target + rest, current, among))

    def counts(self, family: str, counts: Mapping[str, int], label: str) -> None:
        """A counter by one label."""
        for key, value in sorted(counts.items()):
            self.add(family, value, (label, key))

    def done(self) -> Lines:
        """The lines, by the index of their family."""
        return tuple("".join(lines) for lines in self._lines)


@lru_cache(maxsize=20_000)
def _states(family: str, labels: str, current: State, among: tuple[State, ...]) -> str:
    """The lines of a StateSet; a target stays in its state for most looks."""
    return "".join(f'{family}{{{labels},{family}="{state.value}"}} {int(state is current)}\n' for state in among)


def render(snapshot: Snapshot) -> Lines:
    """All lines of a target as of its last look."""
    page = _Page(snapshot.name)
    verdict = snapshot.verdict
    page.states("llm_health_state", verdict.state, STATES)
    page.add("llm_up", snapshot.up)
    _info(page, snapshot)
    _checks(page, snapshot.checks)
    page.add("llm_health_queue_depth", snapshot.waiting)
    page.add("llm_health_kv_cache_ratio", snapshot.kv)
    if snapshot.gpu is not None:
        page.add("llm_health_gpu_ratio", snapshot.gpu.memory)
        page.add("llm_gpu_utilization_ratio", snapshot.gpu.utilization)
        page.add("llm_gpu_power_watts", snapshot.gpu.watts)
        page.add("llm_gpu_xid_fatal", verdict.hardware is not None)
    page.add("llm_event_loop_lag_seconds", snapshot.loop_lag)
    page.add("llm_static_response_seconds", snapshot.static_seconds)
    if snapshot.looked is not None:
        page.add("llm_native_health_status", snapshot.native_status)
        page.add("llm_observation_duration_seconds", snapshot.seconds)
        page.add("llm_target_state_since_timestamp_seconds", snapshot.since)
    page.add("llm_native_health_seconds", snapshot.native_seconds)
    page.add("llm_target_start_timestamp_seconds", snapshot.started_at)
    page.add("llm_canary_available", verdict.canary_available)
    for series in snapshot.missing:
        page.add("llm_signals_missing", 1, ("series", series))
    for bound, label in FIRST_TOKEN_BOUNDS:
        page.add("llm_engine_first_token_requests_total", snapshot.first_token.get(bound), ("within", label))
    _counters(page, snapshot)
    _lanes(page, snapshot)
    return page.done()


def _info(page: _Page, snapshot: Snapshot) -> None:
    labels = [
        ("engine_kind", snapshot.kind),
        ("version", snapshot.version or ""),
        ("model", snapshot.model or ""),
        ("prefill_blind", "true" if snapshot.prefill_blind else "false"),
        *sorted(snapshot.target.labels.items()),
    ]
    page.add("llm_target_info", 1, *labels)
    page.add("llm_target_maintenance", snapshot.target.options.maintenance)


def _checks(page: _Page, checks: Checks) -> None:
    page.add("llm_health_live", checks.live)
    page.add("llm_health_ready", checks.ready)
    for name, failed in (
        ("live", not checks.live),
        ("startup", not checks.startup),
        ("state", not checks.state_ready),
        *checks.limits.items(),
    ):
        page.add("llm_health_check_failed", failed, ("check", name))


def _counters(page: _Page, snapshot: Snapshot) -> None:
    """What goes on even if the target is not looked at."""
    page.counts("llm_health_transitions_total", {"stuck": 0, **snapshot.transitions}, "to")
    page.add("llm_engine_restarts_total", snapshot.restarts)
    page.add("llm_last_observation_timestamp_seconds", snapshot.looked_at)
    page.counts("llm_observation_errors_total", {"timeout": 0, **snapshot.errors}, "reason")
    page.counts("llm_canary_requests_total", {"answered": 0, "silent": 0, **snapshot.canaries}, "result")


def _lanes(page: _Page, snapshot: Snapshot) -> None:
    for verdict in snapshot.verdict.lanes:
        lane = ("lane", verdict.lane)
        page.states("llm_lane_state", verdict.state, WORST_FIRST, lane)
        page.add("llm_engine_progress", verdict.progress, lane)
        page.add("llm_engine_last_progress_timestamp_seconds", snapshot.unix(verdict.last_progress), lane)
        page.add("llm_engine_stalled_seconds", verdict.stalled_seconds, lane)
        page.add("llm_engine_stuck_bound_seconds", verdict.bound.seconds if verdict.bound is not None else None, lane)
    for evidence in snapshot.lanes:
        lane = ("lane", evidence.lane)
        page.add("llm_engine_steps_total", evidence.steps, lane)
        page.add("llm_engine_tokens_total", evidence.prompt_tokens, lane, ("kind", "prompt"))
        page.add("llm_engine_tokens_total", evidence.generation_tokens, lane, ("kind", "generation"))
        page.add("llm_engine_requests", evidence.running, lane, ("state", "running"))
        page.add("llm_engine_requests", evidence.waiting, lane, ("state", "waiting"))
        page.add("llm_engine_preemptions_total", evidence.preemptions, lane)
        page.add("llm_engine_finished_total", evidence.finished, lane)


def render_stale(snapshot: Snapshot) -> Lines:
    """The lines of a target that was not looked at for three intervals, or never: never old numbers."""
    page = _Page(snapshot.name)
    page.states("llm_health_state", State.UNKNOWN, STATES)
    page.add("llm_up", 0)
    _info(page, snapshot)
    _checks(page, Checks())
    _counters(page, snapshot)
    return page.done()
