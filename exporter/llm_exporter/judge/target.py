"""From one observation of a target to its verdict: `judge` is the only entry to the judge.

It is pure: ``(history, observation, t, settings) -> (history, verdict)``. Nothing sticks but what the history holds, and
every part of the history is evidence that later evidence replaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from . import answers, canaries, identity
from .held import before_canary, held_by_lane
from .history import History, LaneHistory
from .lane import Around, Finding, judge_lane
from .observation import CanaryRequest, LaneEvidence, LoopEvidence, Observation, Settings
from .verdict import WORST_FIRST, LaneVerdict, State, Verdict
from .watch import begin, watch
from .words import duration

LOST_LANE_KEPT = 300.0
"""Seconds for which a lane that vanished from the page keeps its target ``unknown`` (elastic engines shrink on purpose)."""


def judge(history: History, seen: Observation, t: float, settings: Settings) -> tuple[History, Verdict]:
    """Judge one look.

    Args:
        history: What earlier looks left; ``History()`` at first.
        seen: The look, read by its engine's adapter.
        t: Monotonic time at which the look began, in seconds.
        settings: The target's patience.
    """
    history = _blocked(history, seen, settings)
    if seen.reach != "answered":
        history = canaries.noted(history, seen)
        history, verdict = _not_answered(history, seen)
    else:
        history, verdict = _answered(history, seen, t, settings)
    if history.blocked_reads >= 2 and seen.loop is not None:
        verdict = _loop_stuck(history, seen.loop, t, verdict)
    return history, replace(verdict, canary_available=history.canary_ok, hardware=seen.witness.hardware)


def _blocked(history: History, seen: Observation, settings: Settings) -> History:
    if seen.loop is None and seen.reach != "answered":
        return history
    blocked = seen.loop is not None and seen.loop.blocked >= settings.blocked_after
    return replace(history, blocked_reads=history.blocked_reads + 1 if blocked else 0)


def _loop_stuck(history: History, loop: LoopEvidence, t: float, verdict: Verdict) -> Verdict:
    who = f" in {loop.culprit}" if loop.culprit else ""
    reason = f"the event loop is blocked for {duration(loop.blocked)}{who}, seen on {history.blocked_reads} reads"
    since = t - loop.blocked
    lanes = verdict.lanes or (LaneVerdict("0", State.STUCK, reason, 0, None),)
    lanes = tuple(
        replace(v, state=State.STUCK, reason=reason, progress=0, stalled_seconds=loop.blocked, flat_since=since)
        for v in lanes
    )
    return replace(verdict, state=State.STUCK, reason=reason, lanes=lanes, lane=lanes[0].lane, progress=0, wants=None,
                   would_change="the loop turns again")  # fmt: skip


def _not_answered(history: History, seen: Observation) -> tuple[History, Verdict]:
    """A failed look shows its own state at once; it proves nothing of the engine and clears nothing."""
    if seen.reach in ("loading", "refused"):
        history = replace(history, tracks=())
    if seen.reach == "loading":
        return replace(history, served=False), Verdict(State.STARTING, seen.detail or "loading")
    if seen.reach != "refused":
        said = f"{seen.detail or seen.reach}{_container(seen)}"
        return history, Verdict(State.UNREACHABLE, said, would_change="it answers in time")
    exists = seen.witness.container == "running"
    started = seen.witness.container_started
    up_before = history.last_unix is not None and (started is None or started <= history.last_unix)
    if exists and not up_before:
        age = f" since {duration(seen.unix - started)}" if started is not None else ""
        return replace(history, served=False), Verdict(
            State.STARTING,
            f"the port is closed and the container runs{age}; it has not served yet",
            would_change="the port opens",
        )
    killed = "; the container was killed for memory" if seen.witness.oom_killed else ""
    why = "after it was up" if history.ever_answered else "and nothing shows that a process exists"
    why += _container(seen)
    return replace(history, served=False), Verdict(
        State.DOWN,
        f"connection refused, {why}{killed} ({seen.detail or 'refused'})",
        would_change="the port opens",
    )


def _container(seen: Observation) -> str:
    """What the runtime says of a server that does not answer, where its container does not simply run."""
    status = seen.witness.container
    return f"; its container is {status}" if status is not None and status != "running" else ""


def _answered(history: History, seen: Observation, t: float, settings: Settings) -> tuple[History, Verdict]:
    if not seen.lanes:
        history = canaries.noted(history, seen)
        if seen.loading and not history.served:
            return history, Verdict(State.STARTING, seen.loading, would_change="it says that it is ready")
        if seen.death and (history.served or seen.died_loading):
            return history, Verdict(State.FAILED, seen.death, would_change="it serves again after a restart")
        if settings.without_metrics and seen.facts.canary is None:
            return _by_canary_alone(history, seen, t, settings)
        return history, Verdict(State.UNKNOWN, seen.detail or "the page has no series that could be judged")

    history, restarted = identity.recognise(history, seen)
    if history.started is None and seen.age is not None:
        history = replace(history, started=t - seen.age)
    if seen.loading and not history.served and not any(lane.worked for lane in seen.lanes):
        return history, Verdict(State.STARTING, seen.loading, restarted=restarted, would_change="it says that it is ready")
    if seen.death is None or any(lane.worked for lane in seen.lanes):
        history = replace(history, served=True)
    history = answers.count_answers(history, seen, t)
    history = before_canary(history, seen)
    held = held_by_lane(seen, history.before_canary or {})
    history = _watched(history, seen, held, t, settings)
    history = canaries.noted(history, seen)
    history = replace(history, last_good=t, last_unix=seen.unix, ever_answered=True)
    if identity.several_processes(history.tracks):
        return history, Verdict(
            State.UNKNOWN, "several processes answer here; give their own URLs", restarted=restarted,
            would_change="ten looks at one process",
        )  # fmt: skip
    findings = _findings(history, seen, held, t, settings)
    history, findings = answers.open_requests(history, seen, findings, t)
    verdict = _of_lanes(tuple(finding.verdict for finding in findings))
    return history, replace(verdict, restarted=restarted, wants=canaries.wanted(history, seen, findings, settings, t))


def _of_lanes(lanes: tuple[LaneVerdict, ...]) -> Verdict:
    """The worst lane speaks for its target; of several, the one that has stood longest."""
    worst = min(lanes, key=lambda lane: (WORST_FIRST.index(lane.state), -lane.stalled_seconds))
    alone = len(lanes) == 1 or worst.state is State.IDLE
    held = [lane.held for lane in lanes if lane.held is not None]
    return Verdict(
        state=worst.state,
        reason=worst.reason if alone else f"lane {worst.lane} of {len(lanes)}: {worst.reason}",
        lanes=lanes,
        lane=worst.lane,
        progress=worst.progress,
        held=sum(held) if held else None,
        would_change=worst.would_change,
    )


def _by_canary_alone(history: History, seen: Observation, t: float, settings: Settings) -> tuple[History, Verdict]:
    """A server without metrics, if the operator asks for it: answered is idle, silent twice unreachable, never stuck."""
    due = history.bare_silent == 1 or history.asked_at is None or t - history.asked_at >= settings.canary_every
    wants = CanaryRequest("idle", None) if due and seen.own_canary is None else None
    if history.bare_silent >= 2:
        said = f"no metrics, and {history.bare_silent} canaries in a row got no answer"
        return history, Verdict(State.UNREACHABLE, said, wants=wants, would_change="a canary is answered")
    if history.bare_answered is not None:
        said = f"no metrics; a canary was answered {duration(max(0.0, t - history.bare_answered))} ago"
        return history, Verdict(State.IDLE, said, progress=1, wants=wants, would_change="two canaries get no answer")
    why = f"; the canary could not be used: {history.cannot} ({seen.detail})" if history.cannot else ""
    return history, Verdict(State.UNKNOWN, f"no metrics, judged by canary alone; none was answered yet{why}", wants=wants)


def _gone(lane: LaneHistory, evidence: LaneEvidence) -> tuple[str, ...]:
    if evidence.asleep:
        return ()  # an unloaded model has no series
    return tuple(name for name in lane.last.progress if name not in evidence.progress)


def _watched(history: History, seen: Observation, held: Mapping[str, float | None], t: float, settings: Settings) -> History:
    """Take complete lanes into the history; a lane whose page is incomplete keeps its history as after a failed look."""
    lanes = dict(history.lanes)
    unwatched = history.last_unix is not None and history.last_good is not None and (
        (seen.unix - history.last_unix) - (t - history.last_good) > settings.longest_gap
    )  # fmt: skip
    for evidence in seen.lanes:
        known, work = lanes.get(evidence.lane), held[evidence.lane]
        if work is None or evidence.missing or (known is not None and _gone(known, evidence)):
            continue
        if known is None:
            lanes[evidence.lane] = begin(evidence, t, work)
        elif unwatched or known.last.asleep or t - known.at > settings.longest_gap:
            lanes[evidence.lane] = begin(evidence, t, work, before=known)
        else:
            lanes[evidence.lane] = watch(known, evidence, t, work)
    present = {evidence.lane for evidence in seen.lanes}
    kept = {name: lane for name, lane in lanes.items() if name in present or t - lane.at <= LOST_LANE_KEPT}
    return replace(history, lanes=kept)


def _findings(
    history: History, seen: Observation, held: Mapping[str, float | None], t: float, settings: Settings
) -> tuple[Finding, ...]:
    dead = answers.death(history, seen, t)
    evidences = {evidence.lane: evidence for evidence in seen.lanes}
    names = [*evidences, *(name for name in history.lanes if name not in evidences)]
    moving = {
        name for name, lane in history.lanes.items()
        if lane.at == t and lane.progress_seen is not None and t - lane.progress_seen <= settings.stalled_after
    }  # fmt: skip
    found: list[Finding] = []
    for name in names:
        evidence, lane, work = evidences.get(name), history.lanes.get(name), held.get(name)
        if evidence is None:
            found.append(Finding(_unjudged(name, f"lane {name} was there and is missing from the page", None)))
        elif lane is None or lane.at != t or work is None:
            found.append(Finding(_unjudged(name, _missing_words(evidence, lane), work)))
        else:
            around = Around(
                facts=seen.facts, settings=settings, witness=seen.witness, alone=len(names) == 1,
                others_move=bool(moving - {name}), dead=dead, cannot=history.cannot, asking=seen.own_canary is not None,
                age=None if history.started is None else t - history.started,
            )  # fmt: skip
            found.append(judge_lane(lane, work, around, t))
    return tuple(found)


def _unjudged(name: str, reason: str, held: float | None) -> LaneVerdict:
    return LaneVerdict(name, State.UNKNOWN, reason, None, held, would_change="the series is there again")


def _missing_words(evidence: LaneEvidence, lane: LaneHistory | None) -> str:
    missing = list(evidence.missing)
    if lane is not None:
        missing += [name for name in _gone(lane, evidence) if name not in missing]
    if not missing:
        missing = [n for n, v in (("running", evidence.running), ("waiting", evidence.waiting)) if v is None]
    if not evidence.progress and not evidence.missing:
        missing.insert(0, "progress counters")
    return f"missing {', '.join(missing)}: it cannot be told whether it works (renamed by an upgrade, or half a page)"
