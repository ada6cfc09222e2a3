"""What the judge says: states, bounds, evidence, and the canary that it asks for. Frozen data.

Times are seconds on the observer's monotonic clock. ``None`` always means "not known", never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .observation import CanaryRequest


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
class Bound:
    """How long evidence may be flat: `stalled_after`, then `seconds` until the last question is asked; and why that long."""

    seconds: float
    stalled_after: float
    why: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """One series as the verdict saw it; `moved_at` is None if it was not seen to move."""

    series: str
    value: float
    moved_at: float | None


@dataclass(frozen=True, slots=True)
class LaneVerdict:
    """What is said of one lane.

    Attributes:
        progress: 1: evidence moved, or nothing is held; 0: held and flat beyond ``stalled_after``, or stuck; None: not known
            yet, or no meaning in this state.
        held: Requests that somebody waits for, our canary not counted; None if the page cannot tell.
        stalled_seconds: For how long evidence is flat; 0 until that is beyond ``stalled_after``.
        flat_since, last_progress, verified_at: Since when evidence is flat, when it last moved, and when a canary or another
            witness last proved that the lane lives.
        would_change: What would change the verdict, for people.
    """

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
        reason: The sentence behind the state.
        lanes: What is said of each lane; none in a state of the whole target.
        lane: The lane that speaks for the target; its `progress` and `would_change` are the target's.
        held: Of all lanes together.
        wants: A canary that the judge asks for now.
        restarted: This look showed that the process is another one than before.
        canary_available: False after a canary that could not confirm; None if none was ever tried.
        hardware: A fatal GPU error in words; a restart would not help.
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
