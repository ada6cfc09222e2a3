"""Who started a container anew? Told from its events: an API restart stops first, a restart policy does not.

Measured on dockerd 20.10: API restart = kill, die, stop, start, restart; `docker stop` = kill, die, stop;
`docker kill` = kill, die; restart policy = die, start.
"""

from __future__ import annotations

from collections.abc import Sequence

from llm_remediator.containers import Event
from llm_remediator.history import Attempt, ForeignStart
from llm_remediator.reconcile import SKEW, window_end

SAME_START = 2.0
"""Seconds between `State.StartedAt` and the `start` event of the same start, at most."""


def is_ours(attempts: Sequence[Attempt], container_id: str, started_at: float) -> bool:
    """Whether one of our calls explains this start."""
    for attempt in attempts:
        for step in attempt.steps:
            if step.container_id != container_id:
                continue
            if step.acted_at is not None and abs(step.acted_at - started_at) < SAME_START:
                return True
            begun = step.acting_at if step.acting_at is not None else step.starting_at
            if begun is None or step.acted_at is not None:
                continue
            if begun - SKEW <= started_at <= max(window_end(step), begun + SKEW):
                return True
    return False


def starts_from_events(
    container_id: str, events: Sequence[Event], *, known: float, newest: float, states: Sequence[tuple[float, str]]
) -> tuple[ForeignStart, ...]:
    """Starts after `known` up to and with `newest` (`State.StartedAt`), each with its cause and the exporter's
    state when it began. `states`: (since, state), oldest first. Without events the cause is unknown.
    """
    starts: list[ForeignStart] = []
    stopped = killed = died = False
    began: float | None = None
    for event in events:
        if event.at <= known + SAME_START and event.action == "start":
            stopped = killed = died = False
            began = None
            continue
        if event.action in ("kill", "die", "stop") and began is None:
            began = event.at
        if event.action == "stop":
            stopped = True
        elif event.action == "kill":
            killed = True
        elif event.action == "die":
            died = True
        elif event.action == "start":
            cause = "api" if stopped else "policy" if died and not killed else "unknown"
            at = newest if abs(event.at - newest) < SAME_START else event.at
            starts.append(ForeignStart(container_id, at, cause, _state_at(states, began if began is not None else at)))
            stopped = killed = died = False
            began = None
    if not starts or abs(starts[-1].started_at - newest) >= SAME_START:
        starts.append(ForeignStart(container_id, newest, "unknown", _state_at(states, newest)))
    return tuple(starts)


def _state_at(states: Sequence[tuple[float, str]], at: float) -> str:
    found = ""
    for since, state in states:
        if since <= at:
            found = state
    return found
