"""What is known of one target after its last look: immutable, so that a reader never sees half of an observation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from llm_exporter.judge import LaneEvidence, State, Verdict
from llm_exporter.target_config import Target

READY_IN = frozenset({State.IDLE, State.BUSY, State.STALLED, State.STARVED, State.UNREACHABLE, State.UNKNOWN})
NOT_YET = "not looked at yet: the first look is under way"
STARTED_IN = frozenset(State) - {State.STARTING, State.DOWN}
SHOWN_FIRST = (
    *(State.STUCK, State.FAILED, State.DOWN, State.STARVED, State.STALLED, State.UNREACHABLE),
    *(State.UNKNOWN, State.STARTING, State.SLEEPING, State.BUSY, State.IDLE),
)
"""The order in which people are shown targets: what needs them first, first."""


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of a target's timeline: from then on it was in this state."""

    unix: float
    state: State
    reason: str


@dataclass(frozen=True, slots=True)
class SentCanary:
    """One entry of the canary log."""

    unix: float
    kind: str
    lane: str | None
    result: str
    seconds: float
    status: int | None
    words: str


@dataclass(frozen=True, slots=True)
class Gpu:
    """Second look at the target's GPUs; ratios 0 to 1, None = not known."""

    memory: float | None = None
    utilization: float | None = None
    watts: float | None = None


@dataclass(frozen=True, slots=True)
class Checks:
    """The answers for orchestrators. `limits` has the configured limits only: True = over the limit."""

    live: bool = True
    startup: bool = True
    state_ready: bool = True
    limits: Mapping[str, bool] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """State and limits together."""
        return self.state_ready and not any(self.limits.values())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One target as of its last look.

    Times named ``*_at`` and `since` are Unix seconds, or None if there is no such time; `looked` is monotonic.

    Attributes:
        kind, version, model: Of its engine; empty or None until known.
        since: Since when it is in the verdict's state.
        seconds: How long the last look took.
        offset: Turns the judge's monotonic times into Unix times.
        up: The last look got a metrics page.
        native_status, native_seconds: HTTP code of the engine's own health (0: none) and its round trip.
        static_seconds: Round trip of the cheapest static endpoint.
        loop_lag: The largest delay of the server's event loop in its last 30 s, in seconds, from its heartbeat.
        unserved_at: The last look at which nobody can have been served: port refused, connection reset, or loading.
        first_token: Requests whose first token came within so many seconds, cumulative by bound.
        missing: Needed series that the page lacks.
        restarts, transitions, errors, canaries: Counts over this exporter's life.
    """

    target: Target
    interval: float
    kind: str = ""
    version: str | None = None
    model: str | None = None
    prefill_blind: bool = False
    verdict: Verdict = field(default_factory=lambda: Verdict(State.UNKNOWN, NOT_YET))
    since: float = 0.0
    looked: float | None = None
    looked_at: float | None = None
    seconds: float = 0.0
    offset: float = 0.0
    up: bool = False
    lanes: tuple[LaneEvidence, ...] = ()
    native_status: int = 0
    native_seconds: float | None = None
    static_seconds: float | None = None
    loop_lag: float | None = None
    started_at: float | None = None
    incarnation: str | None = None
    restarts: int = 0
    restarted_at: float | None = None
    unserved_at: float | None = None
    first_token: Mapping[float, float] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    gpu: Gpu | None = None
    transitions: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    canaries: Mapping[str, int] = field(default_factory=dict)
    canary_log: tuple[SentCanary, ...] = ()
    timeline: tuple[Change, ...] = ()
    checks: Checks = field(default_factory=Checks)

    @property
    def name(self) -> str:
        """The target's name."""
        return self.target.name

    def unix(self, t: float | None) -> float | None:
        """Unix time of one of the judge's monotonic times."""
        return None if t is None else t + self.offset

    @property
    def waiting(self) -> float | None:
        """Requests waiting in all lanes."""
        known = [lane.waiting for lane in self.lanes if lane.waiting is not None]
        return sum(known) if known else None

    @property
    def kv(self) -> float | None:
        """KV usage of the fullest lane."""
        return max((lane.kv for lane in self.lanes if lane.kv is not None), default=None)

    @property
    def last_progress_at(self) -> float | None:
        """The newest progress of any lane."""
        return self.unix(max((v.last_progress for v in self.verdict.lanes if v.last_progress is not None), default=None))

    @property
    def verified_at(self) -> float | None:
        """When a canary or another witness last proved that an engine lives."""
        return self.unix(max((v.verified_at for v in self.verdict.lanes if v.verified_at is not None), default=None))

    def stale(self, now: float) -> bool:
        """Whether the last look is more than three intervals ago, by the monotonic clock."""
        return self.looked is None or now - self.looked > 3 * self.interval + self.seconds


TOO_OLD = "not looked at for three intervals: the exporter is overloaded, see llm_exporter_late_observations_total"


def outdated(snapshot: Snapshot) -> Snapshot:
    """What may still be said of a target whose last look is too old: who it is, and that nothing is known."""
    return replace(
        snapshot,
        verdict=Verdict(State.UNKNOWN, TOO_OLD if snapshot.looked is not None else NOT_YET),
        up=False,
        lanes=(),
        checks=Checks(),
        missing=(),
        native_status=0,
        native_seconds=None,
        static_seconds=None,
        loop_lag=None,
        gpu=None,
        first_token={},
    )
