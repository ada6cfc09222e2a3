"""The heartbeat's metrics. All names and help texts stand in `TABLE`.

Made for several processes too: no custom collectors, no `set_function`, no removed children. Gauges exist once they have a
value, since a gauge that was never set would show 0. `live*` modes, so that a dead process does not speak for ever.
"""

import os
import threading
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

from llm_heartbeat.dependencies import Dependency
from llm_heartbeat.faults import Faults

# Multi-process modes: the worst process speaks.
TABLE: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "llm_event_loop_lag_seconds": (
        "livemax",
        "Largest delay of the event loop in the last 30 s, a block in progress included.",
        (),
    ),
    "llm_event_loop_blocked_seconds": ("livemax", "Age of the block in progress; 0 if the loop turns.", ()),
    "llm_event_loop_last_beat_timestamp_seconds": ("livemin", "Unix time of the loop's last heartbeat.", ()),
    "llm_event_loop_delay_seconds": ("histogram", "Delay of each heartbeat of the event loop.", ()),
    "llm_event_loop_blocked_total": ("counter", "Blocks longer than LLM_HEARTBEAT_BLOCKED_AFTER.", ()),
    "llm_event_loop_blocked_by_total": ("counter", "Blocks by the function that was seen on the loop.", ("function",)),
    "llm_health_live": ("livemin", "1 if /healthz/live answers 200.", ()),
    "llm_health_ready": ("livemin", "1 if /healthz/ready answers 200.", ()),
    "llm_health_startup": ("livemin", "1 if /healthz/startup answers 200.", ()),
    "llm_health_queue_depth": ("livemax", "Waiting requests.", ()),
    "llm_health_queue_limit": ("livemax", "Waiting requests at which readiness turns off.", ()),
    "llm_health_gpu_ratio": ("livemax", "Share of GPU memory in use, of the fullest GPU.", ()),
    "llm_health_kv_cache_ratio": ("livemax", "Share of the KV cache in use.", ()),
    "llm_health_check_failed": ("livemax", "1 while the check fails.", ("check",)),
    "llm_heartbeat_changes_total": ("counter", "Changes of an endpoint's answer.", ("endpoint", "to")),
    "llm_heartbeat_errors_total": ("counter", "Errors of the heartbeat itself, passed by.", ("where",)),
    "llm_heartbeat_inflight_requests": ("livesum", "HTTP requests inside the application.", ()),
    "llm_heartbeat_dependency_up": ("livemin", "0 while the dependency's circuit breaker is open.", ("dependency",)),
    "llm_heartbeat_dependency_checks_total": ("counter", "Checks of a dependency.", ("dependency", "result")),
    "llm_engine_steps_total": ("counter", "Scheduler steps of the engine (vLLM plugin).", ("lane",)),
}
_DELAY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_FUNCTIONS = 32


class Metrics:
    """Writes into the families of `TABLE`. A name that somebody else has taken is counted as a fault and left to them."""

    def __init__(self, faults: Faults, registry: CollectorRegistry = REGISTRY) -> None:
        self._registry = registry
        self._faults = faults
        self._shown_faults: dict[str, int] = {}
        self._shown_checks: dict[tuple[str, str], int] = {}
        self._functions: set[str] = set()

    def set(self, name: str, value: float | None, *labels: str) -> None:
        """Set a gauge; None leaves it as it is."""
        if value is not None:
            self._child(name, labels, "set", value)

    def add(self, name: str, amount: float = 1, *labels: str) -> None:
        """Add to a counter."""
        self._child(name, labels, "inc", amount)

    def observe(self, name: str, value: float) -> None:
        """Observe into a histogram."""
        self._child(name, (), "observe", value)

    def blocked_by(self, function: str) -> None:
        """One block by that function; beyond 32 different ones `other`, so that the label stays bounded."""
        if function not in self._functions and len(self._functions) >= _FUNCTIONS:
            function = "other"
        self._functions.add(function)
        self.add("llm_event_loop_blocked_by_total", 1, function)

    def show_checks(self, dependencies: Iterable[Dependency]) -> None:
        """Bring the dependencies' counts into the counter."""
        for dependency in dependencies:
            for result, count in tuple(dependency.counts.items()):
                new = count - self._shown_checks.get((dependency.name, result), 0)
                if new:
                    self._shown_checks[dependency.name, result] = count
                    self.add("llm_heartbeat_dependency_checks_total", new, dependency.name, result)

    def show_faults(self) -> None:
        """Bring the fault counts into the counter."""
        for where, count in tuple(self._faults.counts.items()):
            new = count - self._shown_faults.get(where, 0)
            if new:
                self._shown_faults[where] = count
                self.add("llm_heartbeat_errors_total", new, where)

    def _child(self, name: str, labels: tuple[str, ...], method: str, value: float) -> None:
        with self._faults.passed_by("metrics"):  # a broken registry costs this one value and nothing else
            found = family(name, self._registry, self._faults)
            if found is not None:
                getattr(found.labels(*labels) if labels else found, method)(value)


# One family a registry, whoever asks: plugin, middleware, or a second heartbeat after the first was stopped.
_families: WeakKeyDictionary[CollectorRegistry, dict[str, Any]] = WeakKeyDictionary()
_making = threading.Lock()


def _after_fork() -> None:
    global _making
    _making = threading.Lock()  # a thread that is not there any more may have held it


os.register_at_fork(after_in_child=_after_fork)


def family(name: str, registry: CollectorRegistry, faults: Faults) -> Any:
    """The family of that name in the table, made on first use; None where somebody else has taken the name."""
    made = _families.get(registry)
    if made is None or name not in made:
        with _making:
            made = _families.setdefault(registry, {})
            if name not in made:
                made[name] = _make(name, registry, faults)
    return made[name]


def _make(name: str, registry: CollectorRegistry, faults: Faults) -> Counter | Gauge | Histogram | None:
    kind, text, labels = TABLE[name]
    try:
        if kind == "counter":
            return Counter(name, text, labels, registry=registry)
        if kind == "histogram":
            return Histogram(name, text, labels, buckets=_DELAY_BUCKETS, registry=registry)
        return Gauge(name, text, labels, multiprocess_mode=kind, registry=registry)  # type: ignore[arg-type]
    except ValueError as error:
        faults.note("metrics", f"{name} is taken: {error}")
        return None


def page(registry: CollectorRegistry = REGISTRY) -> tuple[str, bytes]:
    """Content type and text of this process' metrics, or of all processes in multi-process mode."""
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return CONTENT_TYPE_LATEST, generate_latest(registry)


def table() -> str:
    """The metrics as a Markdown table, for the docs."""
    rows = ["| metric | type | meaning |", "|---|---|---|"]
    for name, (kind, text, labels) in TABLE.items():
        shown = name + ("{" + ",".join(labels) + "}" if labels else "")
        rows.append(f"| `{shown}` | {kind if kind in ('counter', 'histogram') else 'gauge'} | {text} |")
    return "\n".join(rows) + "\n"
