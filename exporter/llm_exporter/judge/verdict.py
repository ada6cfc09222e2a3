"""What the judge says: states, bounds, evidence, and the canary that it asks for. Frozen data.

Times are seconds on the observer's monotonic clock. ``None`` always means "not known", never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .observation import CanaryKind


class State(StrEnum):
    """The states of a lane or a target, worst first where they compete for a target (`WORST_FIRST`)."""

    STUCK = "stuck"
    FAILED = "failed"
    STARVED = "starved"
    STALLED = "stalled"
    UNKNOWN = "unknown"
    SLEEPING = "sleeping"
    BUSY = "busy"
    IDLE = "idle"
    STARTING = "starting"
    UNREACHABLE = "unreachable"
    DOWN = "down"


WORST_FIRST: tuple[State, ...] = (
    State.STUCK,
    State.FAILED,
    State.STARVED,
    State.STALLED,
    State.UNKNOWN,
    State.SLEEPING,
    State.BUSY,
    State.IDLE,
)


@dataclass(frozen=True, slots=True)
class CanaryRequest:
    """The judge asks for one tiny request, to `lane` if it can be pinned."""

    kind: CanaryKind
    lane: str | None


@dataclass(frozen=True, slots=True)
class Bound:
    """How long evidence may be flat before the last question is asked, and why that long."""

    seconds: float
    stalled_after: float
    why: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """One series as the verdict saw it."""

    series: str
    value: float
    moved_at: float | None


@dataclass(frozen=True, slots=True)
class LaneVerdict:
    """What is said of one lane; `flat_since` and `last_progress` are monotonic times."""

    lane: str
    state: State
    reason: str
    progress: int | None
    held: float | None
    stalled_seconds: float = 0.0
    flat_since: float | None = None
    last_progress: float | None = None
    bound: Bound | None = None
    evidence: tuple[Evidence, ...] = ()
    would_change: str = ""
    verified_at: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of a target after one look.

    Attributes:
        lane: The lane that speaks for the target; None for a state of the whole target.
        wants: A canary that the judge asks for now.
        restarted: This look showed that the process is another one than before.
        canary_available: False after a canary that could not confirm; None if none was ever tried.
    """

    state: State
    reason: str
    lanes: tuple[LaneVerdict, ...] = ()
    lane: str | None = None
    progress: int | None = None
    held: float | None = None
    wants: CanaryRequest | None = None
    restarted: bool = False
    canary_available: bool | None = None
    would_change: str = ""
    hardware: str | None = None

    @property
    def sentence(self) -> str:
        """State and reason as one line for a person."""
        return f"{self.state.value}: {self.reason}"
