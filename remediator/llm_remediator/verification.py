"""Does work flow again after our restart? A green health check proves nothing; tokens do. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llm_remediator.containers import Container
from llm_remediator.history import Attempt, Result
from llm_remediator.outcome import Outcome, Status
from llm_remediator.policy.words import clock, span
from llm_remediator.verdicts import TargetReport

SKEW = 5.0
WITNESS_WITHIN = 60.0
"""Seconds after our restart within which the exporter must have noticed it, or it restarted something else."""
EXIT_GRACE = 10.0
_SERVING = frozenset({"busy", "idle"})
_WORKED = frozenset({Result.VERIFIED, Result.RECOVERED, Result.RELAPSED})
_QUIET = frozenset({"idle", "sleeping"})


def patience(earlier: Sequence[Attempt], verify_within: float) -> float:
    """Seconds to wait for work: `verify_within`, or twice what this target's slowest start-up took so far."""
    took = [
        a.closed_at - a.acted_at
        for a in earlier
        if a.result in _WORKED and a.closed_at is not None and a.acted_at is not None
    ]
    return max([verify_within, *(2 * seconds for seconds in took)])


@dataclass(frozen=True, slots=True)
class Verification:
    """The result, or None: wait on. `gave_up`: no further attempt can mend it, whatever budget is left."""

    result: Result | None
    text: str
    gave_up: bool = False


def verify(
    *,
    now: float,
    acting_at: float,
    acted_at: float,
    within: float,
    report: TargetReport | None,
    report_fault: str,
    containers: Sequence[Outcome[Container]],
    witness_within: float = WITNESS_WITHIN,
) -> Verification:
    """Judge one look after a restart that began at `acting_at` and ended in a start at `acted_at`."""
    broken = _container_trouble(containers, now)
    if broken is not None:
        return broken
    late = now >= acted_at + within
    started = max([acted_at, *(c.value.started_at or 0.0 for c in containers if c.value is not None)])
    if report is None:
        if late:
            return Verification(Result.FAILED, f"not verified within {span(within)}: {report_fault}")
        return Verification(None, f"waiting for the exporter: {report_fault}")
    seen = _restart_seen(report, acting_at)
    looked = report.last_observation is not None and report.last_observation > started
    flows = looked and report.state in _SERVING and _newer(started, report.last_progress, report.idle_verified_at)
    unseen_for_long = now >= acted_at + witness_within and (report.last_observation or 0.0) > acted_at + witness_within / 2
    if flows and seen:
        return Verification(
            Result.VERIFIED, f"work flows again {span(now - acting_at)} after the restart: {report.sentence}"
        )
    if (
        not seen
        and unseen_for_long
        and (flows or late or report.state not in ("starting", "unreachable", "down", "unknown"))
    ):
        return Verification(
            Result.WRONG_CONTAINER,
            "the exporter saw no refused connection, no reset and no new process after our restart: "
            "this container is not the one behind the target's url",
            gave_up=True,
        )
    if report.state == "stuck" and seen and report.since is not None and report.since > acted_at:
        return Verification(Result.FAILED, f"stuck again since {clock(report.since)}: {report.sentence}")
    if not late:
        return Verification(None, f"{report.state}: {report.sentence}")
    if report.state in _QUIET and not report.held:
        return Verification(
            Result.RECOVERED_UNVERIFIED, f"it serves, but no request came and no canary was answered in {span(within)}"
        )
    return Verification(Result.FAILED, f"no work flowed within {span(within)}: {report.sentence or report.state}")


def _container_trouble(containers: Sequence[Outcome[Container]], now: float) -> Verification | None:
    for found in containers:
        if found.status is Status.NOT_FOUND:
            return Verification(Result.RECREATED, "the container was made anew or removed after our restart")
        box = found.value
        if box is None or box.running or box.restarting or box.state in ("restarting", "running"):
            continue
        if box.finished_at is None or now - box.finished_at >= EXIT_GRACE:
            why = f" ({box.error})" if box.error else ""
            oom = ", killed for memory" if box.oom_killed else ""
            return Verification(
                Result.FAILED,
                f"{box.name} is {box.state} with exit code {box.exit_code}{oom}{why} after our restart; nothing starts it",
                gave_up=True,
            )
    return None


def _restart_seen(report: TargetReport, acting_at: float) -> bool:
    return _newer(acting_at - SKEW, report.last_unserved, report.last_restart_seen, report.process_started)


def _newer(than: float, *moments: float | None) -> bool:
    return any(moment is not None and moment > than for moment in moments)
