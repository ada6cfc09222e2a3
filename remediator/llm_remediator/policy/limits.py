"""Gates that count: what this target had already, and who else restarts it."""

from __future__ import annotations

from llm_remediator.history import COUNTED_AS_GOOD, Attempt, ForeignStart, History
from llm_remediator.policy.standing import unresolved
from llm_remediator.policy.words import clock, passed, refused, span
from llm_remediator.rules import Rules
from llm_remediator.snapshot import Answer, Snapshot, Verb

FOREIGN_WINDOW = 86400.0
FOREIGN_LIMIT = 2
_SICK = frozenset({"stalled", "stuck"})


def failures(history: History, rules: Rules, now: float) -> int:
    """How many attempts in a row did not keep it healthy."""
    return len(streak(history, rules, now))


def streak(history: History, rules: Rules, now: float) -> list[Attempt]:
    """Attempts in a row, newest first, that did not keep it healthy for `min_healthy`; a re-arm forgives them.

    A success is only forgotten after `min_healthy`, so that a cure which lasts minutes still backs off.
    """
    found = []
    later = now
    for attempt in reversed(_counted(history)):
        good = attempt.result in COUNTED_AS_GOOD and attempt.closed_at is not None
        if good and attempt.closed_at is not None and later - attempt.closed_at >= rules.min_healthy:
            break
        found.append(attempt)
        later = attempt.at
    return found


def cooldown_of(rules: Rules, failed: int) -> float:
    """Seconds after an act: doubles with each failure in a row, up to `cooldown_max`."""
    doubled = rules.cooldown * float(2 ** min(max(failed - 1, 0), 40))
    return min(doubled, max(rules.cooldown_max, rules.cooldown))


def cooldown_until(history: History, rules: Rules, now: float, started_at: float | None) -> float | None:
    """When the next restart is possible as far as cooldown goes; None if nothing ever happened."""
    ends = []
    attempts = [a for a in history.attempts if a.counts]
    if attempts:
        ends.append(attempts[-1].at + cooldown_of(rules, failures(history, rules, now)))
    starts = [s.started_at for s in history.foreign_starts]
    if started_at is not None:
        starts.append(started_at)
    if starts:
        ends.append(max(starts) + rules.cooldown)
    return max(ends) if ends else None


def starts_in_window(history: History, rules: Rules, now: float, container_ids: frozenset[str]) -> list[float]:
    """Times of all starts that the budget counts: our attempts on this target, and everybody else's starts
    of the present containers. The first start of a container id is a deployment and is not counted.
    """
    since = now - rules.budget.per
    ours = [a.at for a in _counted(history) if a.at >= since]
    theirs: dict[str, list[float]] = {}
    for start in _foreign(history):
        if start.container_id in container_ids and start.cause != "deployment" and start.started_at >= since:
            theirs.setdefault(start.container_id, []).append(start.started_at)
    # A group restarted by hand shows one start for each container: that is one restart of the target.
    worst = max(theirs.values(), key=len, default=[])
    return sorted([*ours, *worst])


def budget_left(history: History, rules: Rules, now: float, container_ids: frozenset[str]) -> int:
    """Restarts that the budget still allows now."""
    return max(0, rules.budget.restarts - len(starts_in_window(history, rules, now, container_ids)))


def in_flight(snapshot: Snapshot) -> Answer:
    """One attempt at a time, across our own restarts too."""
    for attempt in snapshot.history.attempts:
        if attempt.open:
            return refused(
                Verb.DEFER,
                "in_flight",
                f"attempt {attempt.id} of {clock(attempt.created_at)} is in phase {attempt.phase}",
            )
    return passed("nothing in flight")


def latched(snapshot: Snapshot) -> Answer:
    """It was given up: a person decides."""
    latch = snapshot.history.latch
    if latch is None:
        return passed("not latched")
    if latch.rearm_at is not None and snapshot.now >= latch.rearm_at:
        return passed(f"the latch of {clock(latch.at)} comes off by itself, once")
    off = f"by itself at {clock(latch.rearm_at)}, or " if latch.rearm_at is not None else ""
    return refused(
        Verb.SKIP, "latched", f"latched since {clock(latch.at)}: {latch.text}; comes off {off}when a person re-arms it"
    )


def cooldown(snapshot: Snapshot) -> Answer:
    """Counted from our last act or the container's start, whichever is later and whoever made it."""
    rules, history = snapshot.target.rules, snapshot.history
    until = cooldown_until(history, rules, snapshot.now, snapshot.started_at)
    if until is None or snapshot.now >= until:
        return passed("no cooldown runs")
    failed = failures(history, rules, snapshot.now)
    why = f" (doubled by {failed} attempts in a row)" if failed > 1 else ""
    return refused(Verb.DEFER, "cooldown", f"cooldown until {clock(until)}, {span(until - snapshot.now)} from now{why}")


def budget(snapshot: Snapshot) -> Answer:
    """A container that needs this many starts has a trouble that one more does not mend."""
    rules = snapshot.target.rules
    ids = frozenset(c.id for c in snapshot.containers)
    used = starts_in_window(snapshot.history, rules, snapshot.now, ids)
    words = f"{len(used)} of {rules.budget.restarts} starts used in the last {span(rules.budget.per)}"
    if len(used) < rules.budget.restarts:
        return passed(words)
    return refused(
        Verb.LATCH,
        "budget",
        f"{words} (ours and everybody else's: {', '.join(clock(t) for t in used)}); restarting does not mend it",
    )


def foreign_owner(snapshot: Snapshot) -> Answer:
    """A second watchdog: we stand down rather than fight over the container."""
    for box in snapshot.containers:
        if box.watchdog_labels:
            return refused(
                Verb.SKIP,
                "foreign_owner",
                f"{box.name} has the label {', '.join(box.watchdog_labels)}: another watchdog may restart it; "
                "remove the label or this target",
            )
    seen = foreign_restarts(snapshot.history, snapshot.now)
    if len(seen) >= FOREIGN_LIMIT:
        return refused(
            Verb.SKIP,
            "foreign_owner",
            f"somebody else restarted it {len(seen)} times while it was stalled or stuck "
            f"({', '.join(clock(s.started_at) for s in seen)}); standing down until a person re-arms it",
        )
    if answer := unresolved(snapshot):
        return answer
    return passed("nobody else restarts it" if not seen else "one foreign restart; that is a person")


def foreign_restarts(history: History, now: float) -> tuple[ForeignStart, ...]:
    """API restarts by others, begun while the target was stalled or stuck, in the last day."""
    return tuple(
        start
        for start in _foreign(history)
        if start.cause == "api" and start.state_then in _SICK and start.started_at >= now - FOREIGN_WINDOW
    )


def _counted(history: History) -> list[Attempt]:
    forgiven = history.rearmed_at if history.rearmed_at is not None else float("-inf")
    return [a for a in history.attempts if a.counts and a.at > forgiven]


def _foreign(history: History) -> list[ForeignStart]:
    forgiven = history.rearmed_at if history.rearmed_at is not None else float("-inf")
    return [s for s in history.foreign_starts if s.started_at > forgiven]
