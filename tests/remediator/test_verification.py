"""Does work flow again? Every answer, and the patience before each."""

from __future__ import annotations

from typing import Any

import pytest

from llm_remediator.containers import Container
from llm_remediator.history import Result
from llm_remediator.mapping import mismatch
from llm_remediator.outcome import Outcome, Status, failed
from llm_remediator.verdicts import TargetReport
from llm_remediator.verification import Verification, patience, verify
from remediator.scenes import ID, NOW, attempt, box, report

ACTING = NOW - 10
ACTED = NOW


def look(after: float, reported: TargetReport | None, *boxes: Outcome[Container]) -> Verification:
    new = Outcome(Status.OK, box(started_at=ACTED, started_at_raw="t1"))
    return verify(
        now=NOW + after,
        acting_at=ACTING,
        acted_at=ACTED,
        within=1200.0,
        report=reported,
        report_fault="connection refused",
        containers=boxes or (new,),
    )


def seen(state: str, after: float, **changes: Any) -> TargetReport:
    base: dict[str, Any] = {
        "state": state,
        "sentence": state,
        "last_observation": NOW + after - 1,
        "last_restart_seen": ACTED + 1,
        "since": ACTED + 1,
        "held": 0.0,
    }
    return report(**(base | changes))


LOOKS: list[tuple[str, float, TargetReport | None, Result | None]] = [
    ("nothing yet", 5, None, None),
    ("exporter away to the end", 1200, None, Result.FAILED),
    ("loading", 300, seen("starting", 300), None),
    ("tokens flow", 60, seen("busy", 60, last_progress=NOW + 50), Result.VERIFIED),
    ("tokens flowed before the restart only", 60, seen("busy", 60, last_progress=ACTING - 1), None),
    ("a canary was answered", 60, seen("idle", 60, idle_verified_at=NOW + 50), Result.VERIFIED),
    ("idle, not asked yet", 60, seen("idle", 60), None),
    ("a silent night", 1200, seen("idle", 1200), Result.RECOVERED_UNVERIFIED),
    ("asleep all night", 1200, seen("sleeping", 1200), Result.RECOVERED_UNVERIFIED),
    ("idle, but holding requests", 1200, seen("idle", 1200, held=2.0), Result.FAILED),
    ("still loading at the end", 1200, seen("starting", 1200), Result.FAILED),
    ("unknown at the end", 1200, seen("unknown", 1200), Result.FAILED),
    ("stuck again", 700, seen("stuck", 700, since=NOW + 650), Result.FAILED),
    ("stuck since before, exporter not caught up", 20, seen("stuck", 20, since=ACTING - 300), None),
    ("not looked at since", 60, seen("busy", 60, last_observation=ACTED - 1, last_progress=NOW + 50), None),
    ("flows, but no restart was seen, early", 30, seen("busy", 30, last_restart_seen=None, last_progress=NOW + 20), None),
    (
        "flows, but no restart was seen",
        61,
        seen("busy", 61, last_restart_seen=None, last_progress=NOW + 50),
        Result.WRONG_CONTAINER,
    ),
    (
        "stuck as before, no restart was seen",
        61,
        seen("stuck", 61, last_restart_seen=None, since=ACTING - 300),
        Result.WRONG_CONTAINER,
    ),
    (
        "a refused port is a restart seen",
        61,
        seen("busy", 61, last_restart_seen=None, last_unserved=ACTED + 1, last_progress=NOW + 50),
        Result.VERIFIED,
    ),
    (
        "a new process is a restart seen",
        61,
        seen("busy", 61, last_restart_seen=None, process_started=ACTED + 1, last_progress=NOW + 50),
        Result.VERIFIED,
    ),
    (
        "an old restart is none",
        61,
        seen("busy", 61, last_restart_seen=ACTING - 900, last_progress=NOW + 50),
        Result.WRONG_CONTAINER,
    ),
    ("unreachable proves no wrong container", 61, seen("unreachable", 61, last_restart_seen=None), None),
]


@pytest.mark.parametrize(("after", "reported", "result"), [x[1:] for x in LOOKS], ids=[x[0] for x in LOOKS])
def test_verify(after: float, reported: TargetReport | None, result: Result | None) -> None:
    found = look(after, reported)
    assert found.result is result, found.text
    assert found.text
    assert found.gave_up is (result is Result.WRONG_CONTAINER)


def test_patience_grows_with_the_targets_own_start_up() -> None:
    quick, slow = attempt(NOW - 9000, Result.VERIFIED), attempt(NOW - 5000, Result.RECOVERED, closed_at=NOW - 4000)
    failed_one = attempt(NOW - 3000, Result.FAILED, closed_at=NOW)
    assert patience([], 600.0) == 600.0
    assert patience([quick], 600.0) == 600.0
    assert patience([quick, slow, failed_one], 600.0) == 2 * 995.0


def dead(**changes: Any) -> Outcome[Container]:
    return Outcome(
        Status.OK, box(state="exited", running=False, exit_code=1, started_at=ACTED, started_at_raw="t1", **changes)
    )


def test_a_container_that_ended_gives_up_after_a_moment() -> None:
    assert look(5, None, dead(finished_at=NOW + 1)).result is None
    found = look(12, None, dead(finished_at=NOW + 1, error="no space"))
    assert (found.result, found.gave_up) == (Result.FAILED, True)
    assert "exit code 1 (no space)" in found.text
    assert "killed for memory" in look(12, None, dead(finished_at=NOW + 1, oom_killed=True)).text


def test_a_policy_between_restarts_is_waited_for() -> None:
    again = Outcome(Status.OK, box(state="restarting", restarting=True, started_at=ACTED, started_at_raw="t1"))
    assert look(30, None, again).result is None


def test_progress_must_be_newer_than_the_newest_start() -> None:
    crashed = Outcome(Status.OK, box(started_at=NOW + 100, started_at_raw="t2"))
    moved = seen("busy", 130, last_progress=NOW + 90)
    assert look(130, moved, crashed).result is None


def test_a_container_made_anew_meanwhile_is_somebody_elses_affair() -> None:
    assert look(5, None, failed(Status.NOT_FOUND, "gone")).result is Result.RECREATED


@pytest.mark.parametrize(
    ("url", "changes", "wrong"),
    [
        ("http://vllm:8000", {"addresses": ("vllm", "172.18.0.2"), "ports": (8000,)}, False),
        ("http://172.18.0.2:8000", {"addresses": ("vllm", "172.18.0.2"), "ports": (8000,)}, False),
        ("http://vllm:8001", {"addresses": ("vllm",), "ports": (8000,)}, True),
        ("http://172.18.0.3:8000", {"addresses": ("vllm", "172.18.0.2"), "ports": (8000,)}, True),
        ("http://127.0.0.1:8000", {"published": (("0.0.0.0", 8000),)}, False),
        ("http://gpu1.example:8000", {"published": (("0.0.0.0", 8000),)}, False),
        ("http://127.0.0.1:8001", {"published": (("127.0.0.1", 8000),)}, True),
        ("http://other:8000", {"addresses": ("vllm",), "ports": (8000,)}, True),
        ("http://anything:1", {"network_mode": "host", "addresses": ("x",)}, False),
        ("http://anything:1", {"network_mode": f"container:{ID}", "addresses": ("x",)}, False),
        ("http://anything:1", {}, False),
        ("not a url", {"addresses": ("x",)}, False),
        ("http://[bad", {"addresses": ("x",)}, False),
    ],
)
def test_a_url_that_does_not_lead_to_the_container_is_warned_about(url: str, changes: dict[str, Any], wrong: bool) -> None:
    assert bool(mismatch(url, box(**changes))) is wrong
