"""What became of a restart call, told from the container alone. Pure.

dockerd goes on with a restart after its client died, and its errors say little (204, 404, 500), so neither
an answer nor a silence is believed before `inspect` agrees (moby `daemon/restart.go`, 20.10 to 29).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from llm_remediator.containers import Container
from llm_remediator.history import Step
from llm_remediator.outcome import Outcome, Status
from llm_remediator.policy.words import clock

KILL_WAIT = 14.0
"""Seconds dockerd may add to the grace: 10 after SIGKILL, 2 after a direct one, 2 more (`kill.go`, `stop.go`)."""
MARGIN = 5.0
SKEW = 5.0
"""Seconds by which a Docker host's clock may be behind ours."""


class Found(StrEnum):
    """How a step stands."""

    UNTOUCHED = "untouched"
    WAIT = "wait"
    """dockerd may still be at it."""
    UNREACHABLE = "unreachable"
    RESTARTED = "restarted"
    HALF = "half"
    """We stopped it and it was not started: one `/start` is ours to make."""
    UNCHANGED = "unchanged"
    STOPPED_BY_OTHER = "stopped_by_other"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Settled:
    """A step's standing, in words, and its new start if there is one."""

    found: Found
    text: str
    started_at: float | None = None


def window_end(step: Step) -> float:
    """Until when dockerd may be busy with our call. Steps that were not made end at once."""
    if step.acting_at is None:
        return 0.0
    return step.acting_at + step.stop_timeout + KILL_WAIT + MARGIN


def settle(step: Step, found: Outcome[Container], now: float, *, answered: bool) -> Settled:
    """Where a step stands at `now`. `answered`: dockerd's reply to the call was seen, so it is not at it any more."""
    if found.status is Status.NOT_FOUND:
        return Settled(Found.GONE, f"{step.name} no longer exists: somebody made it anew or removed it")
    if not found.ok:
        return Settled(Found.UNREACHABLE, f"Docker host {step.host} does not tell: {found.detail or found.status}")
    box = found.get()
    if _started_anew(step, box):
        return Settled(Found.RESTARTED, f"{step.name} was started anew", box.started_at)
    if step.acting_at is None:
        return Settled(Found.UNTOUCHED, f"{step.name} was not touched")
    over = answered or now >= window_end(step)
    if box.running and not box.restarting:
        if not over:
            return Settled(Found.WAIT, f"{step.name} still runs; Docker may be stopping it until {clock(window_end(step))}")
        return Settled(Found.UNCHANGED, f"{step.name} still runs since {clock(box.started_at or 0.0)}: never stopped")
    if not over and not box.error:
        return Settled(Found.WAIT, f"{step.name} is {box.state}; Docker may be starting it until {clock(window_end(step))}")
    if box.state == "removing":
        return Settled(Found.GONE, f"{step.name} is {box.state}")
    if box.restarting:
        return Settled(Found.WAIT, f"{step.name} is between restarts of its own policy")
    if box.finished_at is not None and step.acting_at - SKEW <= box.finished_at <= window_end(step):
        why = f": {box.error}" if box.error else ""
        return Settled(Found.HALF, f"{step.name} was stopped by us and not started{why}")
    ended = clock(box.finished_at) if box.finished_at is not None else "an unknown time"
    return Settled(Found.STOPPED_BY_OTHER, f"{step.name} is {box.state} since {ended}, which was not us; we do not start it")


def _started_anew(step: Step, box: Container) -> bool:
    if box.started_at is None or box.started_at_raw == step.started_before_raw:
        return False
    return step.started_before is None or box.started_at > step.started_before
