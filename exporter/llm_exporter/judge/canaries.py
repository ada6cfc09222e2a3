"""When one tiny request is asked for, and what its answer or silence means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .history import Confirmation, History, LaneHistory
from .lane import Finding
from .observation import CanaryOutcome, CanaryRequest, Observation, Settings
from .verdict import LaneVerdict, State
from .words import duration

MAY_BE_IDLE = (State.IDLE, State.STUCK, State.STARVED)


def noted(history: History, seen: Observation) -> History:
    """Take the outcome of a canary that ended before this look. Call it after the look's page was compared.

    Silence is only evidence on a page that was read again and did not move; that is this look's page.
    """
    outcome = seen.canary or _by_health(history, seen)
    if outcome is None:
        return _health_again(history, seen)
    history = replace(history, health_silent=seen.canary is None)
    if outcome.result == "answered" or outcome.silence:
        lanes = {
            name: _told(lane, outcome) if _concerns(outcome, name, history) else lane for name, lane in history.lanes.items()
        }
        answered = outcome.result == "answered"
        history = replace(
            history,
            lanes=lanes,
            cannot=None,
            canary_ok=True,
            bare_answered=outcome.ended if answered else history.bare_answered,
            bare_silent=0 if answered else history.bare_silent + 1,
            errors=0.0 if answered else history.errors,
            errors_since=None if answered else history.errors_since,
        )
    else:
        said = outcome.words or (str(outcome.status) if outcome.result == "http" else outcome.result)
        history = replace(history, cannot=said, canary_ok=False)
    return replace(history, asked_at=outcome.ended, idle_due=False)


def _by_health(history: History, seen: Observation) -> CanaryOutcome | None:
    """SGLang's ``/health`` is a canary of its own: 503 behind a page that shows nothing held is silence."""
    if not seen.facts.health_is_idle_canary or seen.health != 503 or not seen.lanes:
        return None
    lanes = history.lanes.values()
    if not lanes or any(lane.work_since is not None for lane in lanes):
        return None
    at = max(lane.at for lane in lanes)
    return CanaryOutcome("idle", "silent", began=at, seconds=0.0, words="its /health got no token")


def _health_again(history: History, seen: Observation) -> History:
    """A health that answers again ends the row of its own silences; of the silence of real canaries it says nothing."""
    if not history.health_silent or seen.health != 200:
        return history
    lanes = {name: replace(lane, silent_idle=0, silent_since=None) for name, lane in history.lanes.items()}
    return replace(history, lanes=lanes, health_silent=False)


def _concerns(outcome: CanaryOutcome, lane: str, history: History) -> bool:
    """Of one lane among others a canary that was not pinned says something by its silence only, and if no lane works.

    An idle lane would have answered at once, so the silence is the flat lane's, or that of an idle one that hangs as well;
    behind a lane that works it may only have waited.
    """
    if outcome.lane is not None:
        return outcome.lane == lane
    return len(history.lanes) == 1 or (outcome.silence and all(_still(h, outcome.began) for h in history.lanes.values()))


def _still(lane: LaneHistory, since: float) -> bool:
    """Nothing moved in it, and no work came to it."""
    return (lane.progress_seen or since) <= since and (lane.flat_since or since) <= since


def _told(lane: LaneHistory, outcome: CanaryOutcome) -> LaneHistory:
    if outcome.result == "answered":
        return _answered(lane, outcome)
    if lane.progress_seen is not None and lane.progress_seen > outcome.began:
        return _prefilled(lane, outcome)
    if outcome.kind == "idle":
        since = outcome.began if lane.silent_since is None else lane.silent_since
        return replace(lane, silent_idle=lane.silent_idle + 1, silent_since=since)
    if lane.flat_since is None or outcome.began < lane.flat_since:
        return lane  # it was sent before this stretch of flat evidence began, so it says nothing of it
    if outcome.status == 429:
        words = "the canary was refused with 429 (queue full)"
    elif outcome.status is not None:
        words = f"the canary was answered with {outcome.status}: no token in the engine's own time limit"
    else:
        words = f"the canary got no answer in {duration(outcome.seconds)}"
    return replace(lane, confirmation=Confirmation("silent", outcome.began, outcome.ended, words))


def _answered(lane: LaneHistory, outcome: CanaryOutcome) -> LaneHistory:
    """It lives; if the question was the last one before ``stuck``, its page is frozen."""
    confirmation = lane.confirmation
    if lane.flat_since is not None and lane.flat_since <= outcome.began:
        words = f"a canary was answered in {duration(outcome.seconds)}"
        confirmation = Confirmation("answered", outcome.began, outcome.ended, words)
    return replace(
        lane, verified_at=outcome.ended, silent_idle=0, silent_since=None, unanswered=0, unanswered_since=None,
        confirmation=confirmation,
    )  # fmt: skip


def _prefilled(lane: LaneHistory, outcome: CanaryOutcome) -> LaneHistory:
    """Unanswered, yet the page moved, so it is no silence; counted where no token came for anybody (a dead decode)."""
    if outcome.kind != "idle" or lane.last.generation_tokens is None or lane.marks.generated > outcome.began:
        return lane
    since = outcome.began if lane.unanswered_since is None else lane.unanswered_since
    return replace(lane, unanswered=lane.unanswered + 1, unanswered_since=since)


def wanted(
    history: History, seen: Observation, findings: Sequence[Finding], settings: Settings, t: float
) -> CanaryRequest | None:
    """The request that the judge asks for now: the last question before ``stuck``, else proof of an idle engine."""
    if seen.own_canary is not None:
        return None
    asked = [f for f in findings if f.ask]
    if asked:
        if history.cannot is not None and history.asked_at is not None and t - history.asked_at < settings.canary_timeout:
            return None
        longest = max(asked, key=lambda f: f.verdict.stalled_seconds).verdict
        if len(history.lanes) > 1 and not seen.facts.pins_lanes and _taught_nothing(history, longest, t):
            return None
        return CanaryRequest("confirm", longest.lane if seen.facts.pins_lanes else None)
    return _idle_canary(history, seen, findings, settings, t)


def _taught_nothing(history: History, verdict: LaneVerdict, t: float) -> bool:
    """Whether this stretch of flat evidence was asked about less than a bound ago, and nothing was learnt of this lane."""
    asked, since, bound = history.asked_at, verdict.flat_since, verdict.bound
    if history.cannot is not None or asked is None or since is None or bound is None or asked <= since:
        return False
    return history.lanes[verdict.lane].confirmation is None and t - asked < bound.seconds


def _idle_canary(
    history: History, seen: Observation, findings: Sequence[Finding], settings: Settings, t: float
) -> CanaryRequest | None:
    facts = seen.facts
    if not settings.idle_canary or facts.canary is not None or facts.idle_canary is not None or seen.loading:
        return None
    # Errors alone are no death: where nobody asks any more, only our own request can show that it answers again.
    asks = MAY_BE_IDLE if seen.death else (*MAY_BE_IDLE, State.FAILED)
    if any(f.verdict.state not in asks or f.verdict.held for f in findings):
        return None
    if len(history.lanes) > 1 and not facts.pins_lanes:
        return None
    lane = min(history.lanes.values(), key=_turn)
    ask = CanaryRequest("idle", lane.last.lane if facts.pins_lanes else None)
    verified = lane.verified_at is not None and t - lane.verified_at < settings.canary_every
    if verified and lane.silent_idle == 0 and not history.idle_due:
        return None
    bound = next((f.verdict.bound for f in findings if f.verdict.lane == lane.last.lane), None)
    if lane.silent_idle == 1 and lane.silent_since is not None and bound is not None and history.cannot is None:
        last_question = lane.silent_since + bound.seconds - settings.canary_timeout  # its silence ends at the bound
        return ask if t >= last_question else None
    useless = history.cannot is not None or lane.silent_idle >= 2 or lane.unanswered >= 2
    if useless and history.asked_at is not None and t - history.asked_at < settings.canary_every and not history.idle_due:
        return None
    return ask


def _turn(lane: LaneHistory) -> tuple[bool, float]:
    """Whose turn it is among idle lanes, the smallest first: one that was silent once, then the one verified longest ago."""
    return lane.silent_idle != 1, lane.verified_at if lane.verified_at is not None else -1.0
