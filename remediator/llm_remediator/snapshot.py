"""Everything that is known at the moment of a decision, the gates' answers, and the decision.

Frozen facts: no clock, no I/O. Times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from llm_remediator.containers import Container, Process, Selector
from llm_remediator.history import History, Pause
from llm_remediator.outcome import Outcome
from llm_remediator.rules import RESTART, FleetRules, Mode, Target
from llm_remediator.verdicts import Proof, TargetReport


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
    history: History = field(default_factory=History)
    fleet: FleetFacts = FleetFacts()
    fleet_rules: FleetRules = field(default_factory=FleetRules)
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
