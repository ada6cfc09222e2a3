"""What the configuration allows: targets, and the limits on what may be done to them. Durations are seconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from llm_remediator.containers import Selector


class Mode(StrEnum):
    """`observe` decides, records and simulates, and touches nothing; `act` restarts."""

    OBSERVE = "observe"
    ACT = "act"


class Backend(StrEnum):
    """What carries out the restart."""

    DOCKER = "docker"
    SWARM = "swarm"
    COMMAND = "command"
    KUBERNETES = "kubernetes"


RESTART = "restart"
"""The remedy of every back end: its own restart."""


DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


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
