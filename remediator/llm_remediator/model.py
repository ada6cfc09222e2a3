"""The remediator's own words: targets with their rules, what the journal remembers, and decisions.

Plain frozen facts; no clock, no I/O. Times are Unix seconds, durations seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from llm_remediator.ports import Container, Outcome, Process, Proof, Selector, TargetReport


class Mode(StrEnum):
    """`observe` decides, records and simulates, and touches nothing; `act` restarts."""

    OBSERVE = "observe"
    ACT = "act"


RESTART = "restart"
"""The remedy of every back end: its own restart."""
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Backend(StrEnum):
    """What carries out the restart."""

    DOCKER = "docker"
    SWARM = "swarm"
    COMMAND = "command"
    KUBERNETES = "kubernetes"


class Verb(StrEnum):
    """What a decision says."""

    ACT = "act"
    WOULD_ACT = "would_act"
    SKIP = "skip"
    """Not a case for us as things stand."""
    DEFER = "defer"
    """Not now: waiting alone may change it."""
    AWAITING_APPROVAL = "awaiting_approval"
    """Everything speaks for it; a person has the last word."""
    LATCH = "latch"
    """No more attempts until a person re-arms (or once, after a long time)."""


@dataclass(frozen=True, slots=True)
class Budget:
    """At most `restarts` in any window of `per` seconds."""

    restarts: int
    per: float


@dataclass(frozen=True, slots=True)
class Window:
    """A time of day on some days: `begin` and `end` in minutes since midnight in `zone`; an earlier end is tomorrow's."""

    days: frozenset[int]
    """0 = Monday: the days on which it begins."""
    begin: int
    end: int
    zone: str = "UTC"

    def holds(self, at: datetime) -> bool:
        """Whether it is open at a moment of its own zone."""
        minute = at.hour * 60 + at.minute
        if self.begin < self.end:
            return at.weekday() in self.days and self.begin <= minute < self.end
        late = at.weekday() in self.days and minute >= self.begin
        return late or ((at.weekday() - 1) % 7 in self.days and minute < self.end)

    def __str__(self) -> str:
        days = ",".join(DAYS[day] for day in sorted(self.days))
        return f"{days} {self.begin // 60:02}:{self.begin % 60:02}-{self.end // 60:02}:{self.end % 60:02} {self.zone}"


@dataclass(frozen=True, slots=True)
class Rules:
    """What one target is allowed; every field is a key of `defaults` and of a target."""

    restart_on: frozenset[str] = frozenset({"stuck"})
    cooldown: float = 600.0
    cooldown_max: float = 7200.0
    budget: Budget = Budget(3, 6 * 3600.0)
    startup_grace: float = 600.0
    stop_timeout: float = 60.0
    verify_within: float = 1200.0
    min_healthy: float = 3600.0
    rearm_after: float = 86400.0
    """A latch comes off by itself once after this; 0 = never."""
    windows: tuple[Window, ...] = ()
    """When restarts are allowed; none = always."""
    approve: bool = False
    """A person must approve each restart."""
    approval_expires: float = 900.0
    """How long an approval holds, and how old a proof may be that a person is asked about."""
    remedies: tuple[str, ...] = (RESTART,)
    """What is tried, attempt by attempt: `restart`, or the name of a fixed command; the last one again and again."""


@dataclass(frozen=True, slots=True)
class FleetRules:
    """Limits over all targets together."""

    max_concurrent: int = 1
    max_unhealthy: float = 0.2
    budget: Budget = Budget(6, 3600.0)
    storm_cooldown: float = 600.0


@dataclass(frozen=True, slots=True)
class Target:
    """A configured target: its name at the exporter, and the containers it is, in restart order."""

    name: str
    backend: Backend
    host: str
    selectors: tuple[Selector, ...]
    rules: Rules = Rules()


# --- what the journal remembers -----------------------------------------------------------------


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


# --- what is known at the moment of a decision ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Alert:
    """The alert that asks for a restart, by its own status."""

    target: str
    name: str
    firing: bool
    seen_at: float
    source: str
    """webhook, alertmanager, exporter (polled states), drill, explain"""
    fingerprint: str = ""
    starts_at: float | None = None
    suppressed_by: tuple[str, ...] = ()
    """Silences and inhibiting alerts, when Alertmanager was last read."""


@dataclass(frozen=True, slots=True)
class Member:
    """One configured container, and what it resolved to."""

    selector: Selector
    container: Container | None = None
    fault: str = ""
    reason: str = ""
    """no_match, ambiguous, unreachable; empty if there is a container."""


@dataclass(frozen=True, slots=True)
class FleetMember:
    """One target as the breaker sees it."""

    name: str
    state: str
    since: float | None
    in_flight: bool = False


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """All targets at one moment."""

    members: tuple[FleetMember, ...] = ()
    acts: tuple[float, ...] = ()
    """Times of our restarts of any target."""
    breaker_last_open: float | None = None
    """When the breaker was last seen open: the storm cooldown counts from it."""


@dataclass(frozen=True, slots=True)
class Witness:
    """What one Alertmanager says about a target's alert now."""

    url: str
    reachable: bool
    firing: int = 0
    suppressed_by: tuple[str, ...] = ()
    """Ids of silences and fingerprints of inhibiting alerts."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ProofFacts:
    """A fresh proof, with the incarnations of all containers seen before it was asked for."""

    outcome: Outcome[Proof]
    incarnations_before: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a decision may look at. None in the last four fields: not asked yet."""

    now: float
    mode: Mode
    target: Target
    newest_seen: float = 0.0
    """The newest wall time that the journal has stored."""
    clock_jump_until: float = 0.0
    """After a forward step of the clock: wall time until which waiting times cannot be trusted."""
    journal_fault: str = ""
    not_leading: str = ""
    """Why another remediator acts, or none may, where a Lease decides; empty if we may."""
    pauses: tuple[Pause, ...] = ()
    alert: Alert | None = None
    alert_ttl: float = 300.0
    report: TargetReport | None = None
    report_fault: str = ""
    report_unknown: bool = False
    """The exporter answers, and knows no target of this name."""
    members: tuple[Member, ...] = ()
    history: History = History()
    fleet: FleetFacts = FleetFacts()
    fleet_rules: FleetRules = FleetRules()
    alertmanagers_configured: int = 0
    processes: tuple[tuple[Process, ...], ...] | None = None
    """Samples of all containers' processes, some seconds apart."""
    processes_fault: str = ""
    proof: ProofFacts | None = None
    witnesses: tuple[Witness, ...] | None = None

    @property
    def containers(self) -> tuple[Container, ...]:
        """The containers that were resolved."""
        return tuple(m.container for m in self.members if m.container is not None)

    @property
    def started_at(self) -> float | None:
        """The newest start among the containers; None if any is unknown."""
        starts = [c.started_at for c in self.containers]
        known = [s for s in starts if s is not None]
        return max(known) if known and len(known) == len(starts) else None

    @property
    def incarnation(self) -> str:
        """Of all containers together: changes with any start of any of them."""
        return " ".join(c.incarnation for c in self.containers)


class Fact(StrEnum):
    """A costly fact that a gate may ask for."""

    PROCESSES = "processes"
    PROOF = "proof"
    WITNESSES = "witnesses"


@dataclass(frozen=True, slots=True)
class Answer:
    """One gate's answer. `passed` None: it needs a fact that was not gathered."""

    passed: bool | None
    text: str
    reason: str = ""
    verb: Verb = Verb.SKIP
    needs: Fact | None = None


@dataclass(frozen=True, slots=True)
class GateResult:
    """A gate's name and answer."""

    gate: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class Decision:
    """The first gate that refused, or that all passed."""

    target: str
    at: float
    verb: Verb
    gate: str
    reason: str
    text: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    remedy: str = RESTART
