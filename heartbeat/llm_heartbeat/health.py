"""What the three endpoints answer, from one view of the process. Pure."""

from llm_heartbeat import startup as phases
from llm_heartbeat.report import DEGRADED, FAILED, OK, Detail, Report, Value
from llm_heartbeat.view import DependencyView, LimitView, View

PHASE_FAILURE = {
    phases.LOADING: "model_loading",
    phases.WARMING_UP: "warming_up",
    phases.FAILED: "load_failed",
}


def live(view: View) -> Report:
    """The age of the heartbeat, and nothing else."""
    stuck = view.loop_attached and view.stuck > view.live_after
    reason = f"the event loop has not turned for {view.stuck:.1f} s" if stuck else ""
    if stuck and view.culprit:
        reason += f"; in {view.culprit['function']} ({view.culprit['file']}:{view.culprit['line']})"
    return Report(
        endpoint="live",
        status=FAILED if stuck else OK,
        code=503 if stuck else 200,
        checks={
            "event_loop": "blocked" if view.blocked else "turning" if view.loop_attached else "not attached",
            "event_loop_lag_ms": round(view.lag * 1000, 1),
            "blocked_seconds": round(view.blocked, 3),
            "stuck_seconds": round(view.stuck, 3),
        },
        failed=("event_loop_stuck",) if stuck else (),
        details={"event_loop_stuck": _detail(view.live_after, "seconds", view.blocked_since)},
        reason=reason,
        culprit=view.culprit,
        changes=view.changes,
    )


def startup(view: View) -> Report:
    """Loading, warming up, ready or failed; 500 for failed, which no waiting mends."""
    failure = PHASE_FAILURE.get(view.phase)
    over = view.budget > 0 and view.elapsed > view.budget
    reason = view.phase_reason
    if failure and over:
        reason = f"{reason or view.phase}; {view.elapsed:.0f} s of {view.budget:.0f} s are used up"
    return Report(
        endpoint="startup",
        status=view.phase,
        code=200 if failure is None else 500 if view.phase == phases.FAILED else 503,
        checks={
            "model_loaded": view.phase in (phases.WARMING_UP, phases.READY),
            "warmed_up": view.phase == phases.READY,
            "elapsed_seconds": round(view.elapsed, 1),
            "budget_seconds": view.budget or None,
            "over_budget": over,
        },
        failed=(failure,) if failure else (),
        details={name: _detail(view.budget or None, "seconds", since) for name, since in _phases_since(view).items()},
        reason=reason,
        changes=view.changes,
    )


def ready(view: View) -> Report:
    """Whether new requests should come here. Degraded is 200."""
    failures = dict(_phase_failures(view))
    if view.draining:
        failures["draining"] = view.draining
    failures |= {limit.failure: _over(limit) for limit in view.limits if limit.tripped}
    down = [d for d in view.dependencies if d.down]
    failures |= {f"dependency_{d.name}": _down(d) for d in down if d.leaves}
    degraded = {f"dependency_{d.name}": _down(d) for d in down if not d.leaves}
    checks: dict[str, Value] = {
        "model_loaded": view.phase in (phases.WARMING_UP, phases.READY),
        "warmed_up": view.phase == phases.READY and not view.rewarming,
        "draining": bool(view.draining),
        "inflight": view.inflight,
    }
    details = {name: _detail(None, None, since) for name, since in _phases_since(view).items()}
    details["draining"] = _detail(None, None, view.draining_since)
    for limit in view.limits:
        checks[limit.check] = limit.value
        if limit.check == "queue_depth":
            checks["queue_limit"] = limit.limit
        if limit.limit is not None:
            details[limit.failure] = _detail(limit.limit, limit.unit, limit.since)
    for d in view.dependencies:
        checks[f"dependency_{d.name}"] = not d.down
        details[f"dependency_{d.name}"] = _detail(None, None, d.since) | {"may_leave": d.leaves, "reason": d.reason}
    return Report(
        endpoint="ready",
        status=FAILED if failures else DEGRADED if degraded else OK,
        code=200 if not failures else 500 if view.phase == phases.FAILED else 503,
        checks=checks,
        failed=tuple(failures),
        degraded=tuple(degraded),
        details=details,
        reason="; ".join(text for text in (failures or degraded).values() if text),
        reasons=failures | degraded,
        changes=view.changes,
    )


ENDPOINTS = {"startup": startup, "live": live, "ready": ready}


def _detail(limit: float | None, unit: str | None, since: float | None) -> Detail:
    return {"limit": limit, "unit": unit, "since": since}


def _phases_since(view: View) -> dict[str, float | None]:
    """By the name that each phase has in `failed`; only the present one has a time."""
    return {name: view.phase_since if view.phase == phase else None for phase, name in PHASE_FAILURE.items()}


def _phase_failures(view: View) -> list[tuple[str, str]]:
    failure = PHASE_FAILURE.get(view.phase)
    if failure:
        return [(failure, view.phase_reason or view.phase.replace("_", " "))]
    return [("warming_up", view.phase_reason)] if view.rewarming else []


def _down(dependency: DependencyView) -> str:
    return f"{dependency.name}: {dependency.reason or 'answers again, not yet for long'}"


def _over(limit: LimitView) -> str:
    if limit.value is None or limit.limit is None:
        return limit.failure
    if limit.value < limit.limit:
        return f"{limit.check} {limit.value:g} {limit.unit} is not yet well below its limit of {limit.limit:g}"
    return f"{limit.check} {limit.value:g} {limit.unit}, limit {limit.limit:g}"
