"""The answer for a server of several processes: the worst of them. Pure."""

from dataclasses import replace

from llm_heartbeat import startup as phases
from llm_heartbeat.peers import Snapshot
from llm_heartbeat.report import FAILED, OK, Report

_PHASES = (phases.READY, phases.WARMING_UP, phases.LOADING, phases.FAILED)


def merge(own: Report, peers: list[Snapshot], now: float, watching_since: float, live_after: float, speaks: bool) -> Report:
    """Own answer and those of the other processes; `speaks` False leaves the own one out (a mere launcher).

    A peer's silence counts from the time since we watch without interruption, so that a resumed machine is not stuck.
    """
    if not peers:
        return own
    ages = {p.pid: 0.0 if p.due is None else max(0.0, min(now - p.due, now - watching_since)) for p in peers}
    return {"live": _live, "startup": _startup, "ready": _ready}[own.endpoint](own, peers, ages, live_after, speaks)


def _live(own: Report, peers: list[Snapshot], ages: dict[int, float], live_after: float, speaks: bool) -> Report:
    worst = max(peers, key=lambda p: ages[p.pid])
    stuck = ages[worst.pid] > live_after
    late = max(ages[worst.pid], 0.0)
    checks = dict(own.checks)
    lag = max([ages[p.pid] for p in peers] + [p.lag for p in peers])
    checks["event_loop_lag_ms"] = max(float(checks["event_loop_lag_ms"] or 0), round(lag * 1000, 1))
    blocked = late > float(checks["blocked_seconds"] or 0)
    if blocked or not speaks:
        checks |= {"event_loop": "blocked" if late > 0 else "turning", "blocked_seconds": round(late, 3)}
        checks["stuck_seconds"] = round(late, 3)
    processes = tuple({"pid": p.pid, "blocked_seconds": round(ages[p.pid], 3)} for p in peers)
    if not own.good or not stuck:
        culprit = own.culprit if own.culprit or not blocked else worst.culprit
        return replace(own, checks=checks, processes=processes, culprit=culprit)
    return replace(
        own,
        status=FAILED,
        code=503,
        checks=checks,
        failed=("event_loop_stuck",),
        reason=f"the event loop of process {worst.pid} has not turned for {late:.1f} s",
        culprit=worst.culprit,
        processes=processes,
    )


def _startup(own: Report, peers: list[Snapshot], ages: dict[int, float], live_after: float, speaks: bool) -> Report:
    seen = [(p.startup, p.reason) for p in peers] + ([(own.status, own.reason)] if speaks else [])
    phase, reason = max(seen, key=lambda item: _PHASES.index(item[0]))
    return replace(
        own,
        status=phase,
        code={phases.READY: 200, phases.FAILED: 500}.get(phase, 503),
        checks=own.checks | {"model_loaded": phase in _PHASES[:2], "warmed_up": phase == phases.READY},
        failed={phases.LOADING: ("model_loading",), phases.WARMING_UP: ("warming_up",), phases.FAILED: ("load_failed",)}.get(
            phase, ()
        ),
        reason=reason,
        processes=tuple({"pid": p.pid, "status": p.startup} for p in peers),
    )


def _ready(own: Report, peers: list[Snapshot], ages: dict[int, float], live_after: float, speaks: bool) -> Report:
    """The server is ready as long as one process is: the kernel gives connections to any of them."""
    processes = tuple({"pid": p.pid, "ready": p.ready, "failed": ", ".join(p.failed)} for p in peers)
    if speaks and own.good:
        return replace(own, processes=processes)
    best = next((p for p in peers if p.ready), None)
    if best is not None:
        return replace(
            own, status=best.ready_status or OK, code=200, failed=(), degraded=tuple(best.degraded), reason="",
            checks=own.checks | {"model_loaded": True, "warmed_up": True}, processes=processes,
        )  # fmt: skip
    failed = tuple(dict.fromkeys([*(own.failed if speaks else ()), *(name for p in peers for name in p.failed)]))
    return replace(own, status=FAILED, code=503, failed=failed, processes=processes)
