"""The answer for a server of several processes: the worst of them. Pure."""

from dataclasses import dataclass, replace
from typing import Any

from llm_heartbeat import startup as phases
from llm_heartbeat.health import PHASE_FAILURE
from llm_heartbeat.peers import RENEWED, Snapshot
from llm_heartbeat.report import FAILED, Report

_PHASES = (phases.READY, phases.WARMING_UP, phases.LOADING, phases.FAILED)


@dataclass(frozen=True, slots=True)
class Look:
    """The observer's side of it: clocks now, since when it watches without interruption, and whether it serves itself.

    A mere launcher (`serves` False) speaks through its servers alone.
    """

    now: float
    wall: float
    watching_since: float
    live_after: float
    serves: bool

    def blocked(self, peer: Snapshot) -> float:
        """Seconds; not more than we have watched, so that a resumed machine is not stuck."""
        return min(peer.blocked(self.now), max(0.0, self.now - self.watching_since))

    def silent(self, peer: Snapshot) -> bool:
        """Whether it has not renewed its file while we watched."""
        return peer.silent(self.now) and self.now - self.watching_since >= RENEWED


def merge(own: Report, peers: list[Snapshot], look: Look) -> Report:
    """Own answer and those of the other processes."""
    if not peers:
        return own
    return {"live": _live, "startup": _startup, "ready": _ready}[own.endpoint](own, peers, look)


def _live(own: Report, peers: list[Snapshot], look: Look) -> Report:
    worst = max(peers, key=look.blocked)
    late = look.blocked(worst)
    own_late = float(own.checks["blocked_seconds"] or 0)
    lag = max(late, *(p.lag for p in peers), float(own.checks["event_loop_lag_ms"] or 0) / 1000)
    merged = replace(
        own,
        checks=own.checks | {"event_loop_lag_ms": round(lag * 1000, 1)},
        processes=tuple({"pid": p.pid, "blocked_seconds": round(look.blocked(p), 3)} for p in peers),
    )
    if late <= own_late and look.serves:
        return merged
    state = {"event_loop": "blocked" if late else "turning", "blocked_seconds": round(late, 3)}
    merged = replace(merged, checks=merged.checks | state | {"stuck_seconds": round(late, 3)})
    if late:
        merged = replace(merged, culprit=_of_this_block(worst, look, late))
    if late <= look.live_after:
        return merged
    reason = f"the event loop of process {worst.pid} has not turned for {late:.1f} s"
    details = {"event_loop_stuck": own.details["event_loop_stuck"] | {"since": round(look.wall - late, 3)}}
    return replace(merged, status=FAILED, code=503, failed=("event_loop_stuck",), reason=reason, details=details)


def _of_this_block(peer: Snapshot, look: Look, late: float) -> dict[str, Any] | None:
    """The last culprit that was seen there may be that of an earlier block."""
    return peer.culprit if peer.culprit and peer.culprit["at"] > look.wall - late else None


def _startup(own: Report, peers: list[Snapshot], look: Look) -> Report:
    seen = [(p.startup, p.startup_reason) for p in peers] + ([(own.status, own.reason)] if look.serves else [])
    phase, reason = max(seen, key=lambda item: _PHASES.index(item[0]))
    return replace(
        own,
        status=phase,
        code={phases.READY: 200, phases.FAILED: 500}.get(phase, 503),
        checks=own.checks | {"model_loaded": phase in _PHASES[:2], "warmed_up": phase == phases.READY},
        failed=(PHASE_FAILURE[phase],) if phase in PHASE_FAILURE else (),
        reason=reason,
        processes=tuple({"pid": p.pid, "status": p.startup} for p in peers),
    )


def _ready(own: Report, peers: list[Snapshot], look: Look) -> Report:
    """The server is ready as long as one process is: the kernel gives connections to any of them."""
    ready = [p for p in peers if p.ready and not look.silent(p)]
    own = replace(
        own,
        processes=tuple({"pid": p.pid, "ready": p in ready, "failed": ", ".join(p.failed)} for p in peers),
    )
    if look.serves and own.good:
        return own
    if ready:
        best = ready[0]
        return replace(
            own, status=best.ready_status, code=200, failed=(), degraded=tuple(best.degraded), reason=best.ready_reason,
            checks=own.checks | {"model_loaded": True, "warmed_up": True, "draining": False}, reasons={},
        )  # fmt: skip
    why = [(own.failed, own.reason)] if look.serves else []  # a launcher's own phase says nothing
    why += [
        (("event_loop_slow",), f"process {p.pid} is silent") if look.silent(p) else (tuple(p.failed), p.ready_reason)
        for p in peers
    ]
    failed = tuple(dict.fromkeys(name for names, _ in why for name in names))
    reason = "; ".join(dict.fromkeys(words for _, words in why))
    code = 500 if "load_failed" in failed else 503
    return replace(own, status=FAILED, code=code, failed=failed, reason=reason, reasons={})
