"""What the journal remembers of a target. Times are Unix seconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from llm_remediator.rules import RESTART


class Phase(StrEnum):
    """How far an attempt has come. Only `CLOSED` is finished."""

    INTENT = "intent"
    """Written; no call was made."""
    ACTING = "acting"
    """Calls may have been made: from here on an attempt is reconciled and never begun again."""
    VERIFYING = "verifying"
    """The container was started anew; waiting until work flows."""
    CLOSED = "closed"


class Result(StrEnum):
    """How an attempt ended."""

    VERIFIED = "verified"
    """Work flows again; becomes `recovered` after `min_healthy` without a relapse."""
    RECOVERED = "recovered"
    RELAPSED = "relapsed"
    """Work flowed, and it fell ill again before `min_healthy` was over."""
    RECOVERED_UNVERIFIED = "recovered_unverified"
    """It serves, but nothing was held and no canary was answered: a silent night, not a failure."""
    WITHDRAWN = "withdrawn"
    """The last check before the call said no: nothing was touched, nothing is counted."""
    ABANDONED = "abandoned"
    """We died before the call, or the call had no effect: counts as an attempt."""
    FAILED = "failed"
    UNKILLABLE = "unkillable"
    START_FAILED = "start_failed"
    WRONG_CONTAINER = "wrong_container"
    STOPPED_BY_OTHER = "stopped_by_other"
    RECREATED = "recreated"
    SIMULATED = "simulated"
    """Observe mode: this is when it would have been restarted."""


COUNTED_AS_GOOD = frozenset({Result.VERIFIED, Result.RECOVERED, Result.RECOVERED_UNVERIFIED})


@dataclass(frozen=True, slots=True)
class Step:
    """One container of an attempt. The times say which calls may have been made."""

    ordinal: int
    host: str
    container_id: str
    name: str
    started_before: float | None
    started_before_raw: str
    stop_timeout: float
    acting_at: float | None = None
    """Written and fsynced before the restart call; None = it was certainly not made."""
    starting_at: float | None = None
    """The same for the one `/start` that mends a half restart."""
    acted_at: float | None = None
    """Its StartedAt after our restart."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A restart, intended, made or simulated."""

    id: int
    target: str
    simulated: bool
    phase: Phase
    created_at: float
    result: Result | None = None
    acting_at: float | None = None
    acted_at: float | None = None
    """When the (last) container had been started anew."""
    closed_at: float | None = None
    settled_at: float | None = None
    """When `verified` became `recovered`, or the next act made it a relapse."""
    detail: str = ""
    remedy: str = RESTART
    steps: tuple[Step, ...] = ()

    @property
    def open(self) -> bool:
        """True while it is in flight."""
        return self.phase is not Phase.CLOSED

    @property
    def counts(self) -> bool:
        """Whether cooldown and budget count it: everything but what was withdrawn untouched."""
        return self.result is not Result.WITHDRAWN

    @property
    def at(self) -> float:
        """The moment that cooldown and budget count from."""
        return self.acting_at if self.acting_at is not None else self.created_at


@dataclass(frozen=True, slots=True)
class ForeignStart:
    """A start of a target's container that we did not make."""

    container_id: str
    started_at: float
    cause: str
    """deployment (first start of this id), api, policy, unknown"""
    state_then: str = ""
    """The exporter's state when that restart began, e.g. `stuck`; empty if not known."""


@dataclass(frozen=True, slots=True)
class Latch:
    """No attempt until it is taken off."""

    at: float
    reason: str
    text: str
    rearm_at: float | None = None
    """When it comes off by itself; None = only a person takes it off."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of one target, or of all (`target` None). Every pause ends."""

    target: str | None
    until: float
    reason: str
    by: str


@dataclass(frozen=True, slots=True)
class Approval:
    """What a person was asked, and said: one remedy, for one incarnation, once."""

    id: int
    incarnation: str
    remedy: str
    asked_at: float
    proven_at: float
    """When all gates but this one last passed: later than `asked_at` if nobody answers for long."""
    text: str
    """What was asked then, with what was proven."""
    approved_by: str = ""
    """Empty: nobody did yet."""
    expires_at: float = 0.0
    attempt: int | None = None
    """The attempt that used it up."""


@dataclass(frozen=True, slots=True)
class History:
    """What the journal knows about a target that the gates need."""

    attempts: tuple[Attempt, ...] = ()
    """Oldest first."""
    foreign_starts: tuple[ForeignStart, ...] = ()
    latch: Latch | None = None
    rearmed_at: float | None = None
    """When a person last re-armed it: what came before is forgiven."""
    approval: Approval | None = None
    """The newest question to a person, and the answer."""
