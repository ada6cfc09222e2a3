"""What the endpoints look at: the state of the process at one moment."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llm_heartbeat.state import State

# check, failure, unit
LIMITS = {
    "queue": ("queue_depth", "queue_full", "requests"),
    "kv": ("kv_cache_ratio", "kv_cache_full", "ratio"),
    "gpu": ("gpu_mem_ratio", "gpu_pressure", "ratio"),
    "lag": ("event_loop_lag_ms", "event_loop_slow", "ms"),
}


@dataclass(frozen=True, slots=True)
class LimitView:
    """One limit of readiness. `since` is Unix time; `limit` None means switched off, then it never trips."""

    check: str
    failure: str
    value: float | None
    limit: float | None
    unit: str
    tripped: bool
    since: float | None


@dataclass(frozen=True, slots=True)
class DependencyView:
    """One essential dependency. `leaves`: this replica may become unready for it."""

    name: str
    down: bool
    leaves: bool
    reason: str
    since: float | None


@dataclass(frozen=True, slots=True)
class View:
    """Everything the endpoints look at. Durations are seconds, `…_since` is Unix time."""

    loop_attached: bool
    lag: float
    blocked: float
    blocked_since: float | None
    stuck: float
    live_after: float
    phase: str
    phase_reason: str
    phase_since: float | None
    rewarming: bool
    elapsed: float
    budget: float
    draining: str
    draining_since: float | None
    inflight: int
    limits: tuple[LimitView, ...] = ()
    dependencies: tuple[DependencyView, ...] = ()
    culprit: dict[str, Any] | None = None
    changes: tuple[dict[str, Any], ...] = ()


def view_of(state: "State", from_loop: bool = False) -> View:
    """The view now. `from_loop`: asked in the loop's thread, so the loop turns."""
    now, wall = state.clock(), state.wall()
    beats, startup = state.beats, state.startup
    overdue = beats.overdue(now) if beats and not from_loop else 0.0
    blocked = overdue if overdue > state.settings.blocked_after else 0.0

    def unix(then: float | None) -> float | None:
        return None if then is None else round(wall - (now - then), 3)

    def limit_view(name: str) -> LimitView:
        check, failure, unit = LIMITS[name]
        limit, value = state.limits.get(name), state.values.get(name)
        return LimitView(
            check=check,
            failure=failure,
            value=None if value is None else round(value, 1 if unit == "ms" else 4),
            limit=limit.high if limit else None,
            unit=unit,
            tripped=limit is not None and limit.tripped,
            since=unix(limit.since) if limit else None,
        )

    return View(
        loop_attached=beats is not None,
        lag=max(state.lag.largest(now), overdue),
        blocked=blocked,
        blocked_since=unix(now - blocked) if blocked else None,
        stuck=min(state.watch.stuck_seconds, overdue),
        live_after=state.settings.live_after,
        phase=startup.phase,
        phase_reason=startup.reason,
        phase_since=state.history.since("startup"),
        rewarming=startup.rewarming,
        elapsed=startup.elapsed(now),
        budget=state.settings.startup_budget,
        draining=state.drain_reason,
        draining_since=unix(state.drain_since),
        inflight=state.requests.count,
        limits=tuple(map(limit_view, LIMITS)),
        dependencies=tuple(
            DependencyView(d.name, d.down, d.leaves, d.reason, None if d.since is None else round(d.since, 3))
            for d in tuple(state.dependencies.values())
        ),
        culprit=state.culprit.as_dict() if state.culprit else None,
        changes=state.history.entries(),
    )
