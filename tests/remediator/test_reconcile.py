"""What a container tells of a restart call that was made, or may have been; and who started it."""

from __future__ import annotations

from typing import Any

import pytest

from llm_remediator.containers import Container, Event
from llm_remediator.history import Step
from llm_remediator.outcome import Outcome, Status, failed
from llm_remediator.reconcile import KILL_WAIT, MARGIN, Found, settle, window_end
from llm_remediator.starts import is_ours, starts_from_events
from remediator.scenes import ID, NOW, attempt, box

BEFORE = NOW - 7200
STEP = Step(0, "local", ID, "vllm", BEFORE, "t0", 60.0, acting_at=NOW)
END = NOW + 60 + KILL_WAIT + MARGIN


def seen(**changes: Any) -> Outcome[Container]:
    return Outcome(Status.OK, box(started_at=BEFORE, **changes))


def exited(at: float, **changes: Any) -> Outcome[Container]:
    return seen(state="exited", running=False, finished_at=at, **changes)


ANEW = Outcome(Status.OK, box(started_at=NOW + 4, started_at_raw="t1"))

STANDINGS: list[tuple[str, Outcome[Container], float, bool, Found]] = [
    ("started anew", ANEW, NOW + 5, True, Found.RESTARTED),
    ("started anew, though nobody answered", ANEW, NOW + 5, False, Found.RESTARTED),
    (
        "started anew and ended again",
        Outcome(Status.OK, box(started_at=NOW + 4, started_at_raw="t1", state="exited", running=False, finished_at=NOW + 6)),
        NOW + 9,
        True,
        Found.RESTARTED,
    ),
    ("still runs, Docker may be stopping it", seen(), NOW + 30, False, Found.WAIT),
    ("still runs, Docker said no", seen(), NOW + 1, True, Found.UNCHANGED),
    ("still runs after the window", seen(), END, False, Found.UNCHANGED),
    ("stopped, Docker may be starting it", exited(NOW + 3), NOW + 5, False, Found.WAIT),
    ("stopped, and the start failed", exited(NOW + 3, error="no such device"), NOW + 5, False, Found.HALF),
    ("stopped, and Docker answered", exited(NOW + 3), NOW + 5, True, Found.HALF),
    ("stopped in the window, seen after it", exited(NOW + 70), END + 500, False, Found.HALF),
    ("stopped after the window", exited(END + 1), END + 500, False, Found.STOPPED_BY_OTHER),
    ("stopped long before", exited(NOW - 60), END + 1, False, Found.STOPPED_BY_OTHER),
    (
        "stopped, nobody knows when",
        seen(state="exited", running=False, finished_at=None),
        END + 1,
        False,
        Found.STOPPED_BY_OTHER,
    ),
    ("gone", failed(Status.NOT_FOUND, "no such container"), NOW + 1, True, Found.GONE),
    ("daemon away", failed(Status.UNAVAILABLE, "refused"), END + 9, False, Found.UNREACHABLE),
    ("no answer", failed(Status.TIMED_OUT, "late"), END + 9, False, Found.UNREACHABLE),
    ("being removed", seen(state="removing", running=False), END + 1, True, Found.GONE),
    ("a unit that failed to start", seen(state="dead", running=False, finished_at=NOW + 1), NOW + 2, True, Found.HALF),
    ("its own policy is at it", seen(state="restarting", restarting=True), END + 1, True, Found.WAIT),
]


@pytest.mark.parametrize(("found", "now", "answered", "expected"), [s[1:] for s in STANDINGS], ids=[s[0] for s in STANDINGS])
def test_settle(found: Outcome[Container], now: float, answered: bool, expected: Found) -> None:
    settled = settle(STEP, found, now, answered=answered)
    assert settled.found is expected
    assert settled.text


def test_a_step_that_was_not_made_is_untouched_whatever_it_looks_like() -> None:
    step = Step(0, "local", ID, "vllm", BEFORE, "t0", 60.0)
    assert settle(step, exited(NOW), NOW, answered=False).found is Found.UNTOUCHED
    assert settle(step, seen(), NOW, answered=False).found is Found.UNTOUCHED
    assert settle(step, ANEW, NOW + 9, answered=False).found is Found.RESTARTED
    assert window_end(step) == 0.0


def event(at: float, action: str) -> Event:
    return Event(NOW + at, action)


API = [event(10, "kill"), event(11, "die"), event(11, "stop"), event(12, "start"), event(12.1, "restart")]
POLICY = [event(20, "die"), event(21, "start")]
STATES = ((NOW - 100, "busy"), (NOW + 5, "stalled"), (NOW + 9, "stuck"), (NOW + 13, "starting"))


@pytest.mark.parametrize(
    ("events", "newest", "expected"),
    [
        (API, 12.0, [(12.0, "api", "stuck")]),
        (POLICY, 21.0, [(21.0, "policy", "starting")]),
        ([*API, *POLICY], 21.0, [(12.0, "api", "stuck"), (21.0, "policy", "starting")]),
        ([event(1, "kill"), event(1, "die"), event(2, "start")], 2.0, [(2.0, "unknown", "busy")]),
        ([], 12.0, [(12.0, "unknown", "stuck")]),
        ([event(0, "start"), *API], 12.0, [(12.0, "api", "stuck")]),
        (API, 300.0, [(12.0, "api", "stuck"), (300.0, "unknown", "starting")]),
    ],
    ids=["api", "policy", "both", "kill and policy", "events lost", "the known start", "the newest lost"],
)
def test_who_started_it(events: list[Event], newest: float, expected: list[tuple[float, str, str]]) -> None:
    found = starts_from_events(ID, events, known=NOW, newest=NOW + newest, states=STATES)
    assert [(s.started_at - NOW, s.cause, s.state_then) for s in found] == expected


def test_our_own_start_is_known_by_its_time() -> None:
    ours = attempt(NOW)
    assert is_ours([ours], ID, NOW + 5.5)
    assert not is_ours([ours], ID, NOW + 500)
    assert not is_ours([ours], "cd" * 32, NOW + 5.5)
