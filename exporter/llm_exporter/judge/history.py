"""What the judge remembers between two looks. Frozen: every step returns a new history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .observation import CanaryResult, LaneEvidence

RATE_LOOKS = 12
"""Looks kept for the rate in the sentence."""

RATE_SECONDS = 10.5
"""The stretch over which that rate is taken, if the looks are close enough."""

TRACK_LOOKS = 10
"""Looks within which two falls and a return mean that several processes answer behind one address."""


class RatePoint(NamedTuple):
    """One look's share of the rate sentence: tokens generated, tokens of any kind, steps, KV usage."""

    t: float
    generated: float | None
    tokens: float | None
    steps: float | None
    kv: float | None


@dataclass(frozen=True, slots=True)
class Marks:
    """When each kind of evidence last changed (or began to be watched). Monotonic times.

    Attributes:
        moved: Anything that counts as progress.
        counted: Token or step counters, KV usage apart.
        token: Prompt or generated tokens; any counter where the page tells neither.
        generated, prompted, finished, preempted: The counters of these names; `preempted` only when it rose.
        shrank: Waiting was zero or became smaller.
        ran: `running` was above zero.
        evictions: Looks at which preemptions had risen, since the last `token`.
        all_deferred: Nothing ran and every request that waited was deferred; None if that was never seen.
        series: Last change that was seen, per progress series, of `finished` and of `kv_cache_ratio`.
    """

    moved: float
    counted: float
    token: float
    generated: float
    prompted: float
    finished: float
    preempted: float | None
    shrank: float
    ran: float
    evictions: int = 0
    all_deferred: float | None = None
    series: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The answer to the last question, for the stretch of flat evidence that it was asked in."""

    result: CanaryResult
    began: float
    ended: float
    words: str


@dataclass(frozen=True, slots=True)
class LaneHistory:
    """One lane since this process (or this observation of it) began.

    Attributes:
        last, at: The last good evidence, and when.
        since: First look of this observation; the clocks may not reach behind it.
        compared: Whether two good looks of this observation exist.
        progress_seen: When progress was last seen with our own eyes, or None.
        work_since: When held work was first seen, or None while nothing is held.
        flat_since: When the flat clock started, or None while nothing is held.
        fresh: No token had been counted when this process was first seen (its first work is still to come or in sight).
        first_work: When the first work of this process was seen, if it was seen.
        slowest_decode: Slowest measured seconds per decode (only engines that print few digits).
        confirmation: What the last question brought, until evidence moves.
        verified_at: When a canary or another witness last proved that the lane lives.
        silent_idle: Idle canaries in a row that nobody answered, while nothing moved.
        silent_since: When the first of these was sent.
        unanswered: Idle canaries in a row that nobody answered and that something moved for, while no token was generated: a
            dead decode still prefills them (vLLM issue 45094).
        unanswered_since: When the first of these was sent.
        rate: The last looks, oldest first, for the rate in the sentence.
    """

    last: LaneEvidence
    at: float
    since: float
    marks: Marks
    compared: bool = False
    progress_seen: float | None = None
    work_since: float | None = None
    flat_since: float | None = None
    fresh: bool = False
    first_work: float | None = None
    slowest_decode: float | None = None
    confirmation: Confirmation | None = None
    verified_at: float | None = None
    silent_idle: int = 0
    silent_since: float | None = None
    unanswered: int = 0
    unanswered_since: float | None = None
    rate: tuple[RatePoint, ...] = ()


class Track(NamedTuple):
    """Who answered one look: the incarnation and all progress counters."""

    incarnation: str | None
    counters: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class History:
    """One target.

    Attributes:
        incarnation: The process of the last good look.
        started: Monotonic time of the process's start as reckoned at first sight (a wall clock may jump later), if known.
        ever_answered: The target answered with an engine's page at least once.
        served: This process has been seen able to serve.
        last_good, last_unix: Monotonic and wall time of the last good look.
        tracks: Who answered the last looks.
        ok, failed: Inference answers 2xx and 5xx, life-time counts, as of the last look that had them.
        errors, errors_since: Answers 5xx since the last success, and when the first of them was seen.
        blocked_reads: Reads in a row in which the event loop was blocked beyond the limit.
        idle_due: An idle canary is due at once (a new process).
        asked_at: When the last canary ended (or could not be had), to pace the next.
        cannot: Why the last canary could not confirm anything, or None.
        canary_ok: Whether the last canary was of use; None if none was tried.
        health_silent: The last silence was the engine's own health's, not a canary's.
        before_canary: Requests that the page showed per lane when our canary in flight was sent.
        open_since: Since when HTTP requests are open although nothing is held and nothing moves.
        bare_answered, bare_silent: For a server without metrics: the last answered canary, and silent ones in a row since.
    """

    lanes: Mapping[str, LaneHistory] = field(default_factory=dict)
    incarnation: str | None = None
    started: float | None = None
    ever_answered: bool = False
    served: bool = False
    last_good: float | None = None
    last_unix: float | None = None
    tracks: tuple[Track, ...] = ()
    ok: float | None = None
    failed: float | None = None
    errors_since: float | None = None
    errors: float = 0.0
    blocked_reads: int = 0
    idle_due: bool = True
    asked_at: float | None = None
    cannot: str | None = None
    canary_ok: bool | None = None
    health_silent: bool = False
    before_canary: Mapping[str, float] | None = None
    open_since: float | None = None
    bare_answered: float | None = None
    bare_silent: int = 0
