"""kill -9 at every transition, against real Docker: never a second restart, never a container left stopped by us.

Every scenario is a container, a remediator that dies at its point, and a second one that finds the journal. They
run side by side, because most of their time is waiting for what dockerd may still be doing.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.remedy_stage import Stage
from e2e.tiny_docker import Hands, until
from llm_remediator import fault

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

DEAF = "trap '' TERM; while :; do sleep 1; done"
"""Ignores SIGTERM: Docker kills it after the grace, which gives a call that lasts."""


@dataclass(frozen=True)
class Outcome:
    """What a scenario left behind."""

    status: int
    results: tuple[str, ...]
    starts: int
    running: bool
    phases_after_death: tuple[str, ...]


Scenario = Callable[[Path, Any, Hands], Outcome]


def crash_at(point: str, script: str = "sleep 1000 & wait") -> Scenario:
    """Dies at a point of an ordinary restart."""

    def play(folder: Path, client: Any, hands: Hands) -> Outcome:
        stage = Stage(folder, client, hands.run(script))
        try:
            stage.start(point)
            status = stage.wait_for_death()
            phases = tuple(a["phase"] for a in stage.attempts())
            stage.start()
            # It works again in the end, by the first restart or by one that was safe to begin anew.
            stage.wait_decision("state_busy", 60)
            stage.wait_closed(max(1, len(phases)))
            time.sleep(2)
            return _outcome(stage, status, phases)
        finally:
            stage.close()

    return play


def crash_in_half_restart(point: str) -> Scenario:
    """The start fails, because a mount is gone; the remediator dies around its one `/start`."""

    def play(folder: Path, client: Any, hands: Hands) -> Outcome:
        mount = folder / "weights"
        mount.mkdir()
        stage = Stage(folder, client, hands.run(mounts=[_bind(mount)]))
        try:
            shutil.rmtree(mount)
            stage.start(point)
            status = stage.wait_for_death()
            phases = tuple(a["phase"] for a in stage.attempts())
            mount.mkdir()
            stage.start()
            stage.wait_closed(1, 60)
            return _outcome(stage, status, phases)
        finally:
            stage.close()

    return play


def _bind(source: Path) -> Any:
    from docker.types import Mount

    return Mount(target="/tmp/weights", source=str(source), type="bind")


def _outcome(stage: Stage, status: int, phases: tuple[str, ...]) -> Outcome:
    return Outcome(
        status,
        tuple(str(a["result"]) for a in stage.attempts()),
        stage.starts(),
        bool(stage.state()["Running"]),
        phases,
    )


SCENARIOS: dict[str, Scenario] = {
    **{p: crash_at(p) for p in fault.POINTS if p not in ("during_call", "after_starting", "after_start")},
    "during_call": crash_at("during_call", DEAF),
    "after_starting": crash_in_half_restart("after_starting"),
    "after_start": crash_in_half_restart("after_start"),
}
NOTHING_CALLED = ("before_intent", "after_intent", "after_diagnostics", "after_recheck", "after_acting")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, client: Any) -> Iterator[dict[str, Future[Outcome]]]:
    """All scenarios, begun at once."""
    hands = Hands(client)
    with ThreadPoolExecutor(len(SCENARIOS)) as pool:
        try:
            yield {name: pool.submit(play, tmp_path_factory.mktemp(name), client, hands) for name, play in SCENARIOS.items()}
        finally:
            pool.shutdown(cancel_futures=True)
            hands.clean()


@pytest.mark.parametrize("point", SCENARIOS)
def test_never_two_restarts_and_never_left_stopped(point: str, outcomes: dict[str, Future[Outcome]]) -> None:
    outcome = outcomes[point].result(200)
    assert outcome.status == 137, "the remediator did not die at this point: the test proves nothing"
    assert outcome.starts == 1, outcome
    assert outcome.running, outcome
    if point == "before_intent":
        assert outcome.results == ("verified",)
    elif point in NOTHING_CALLED:
        # Never resumed by itself; the next look at the world began anew.
        assert outcome.results == ("abandoned", "verified")
    else:
        assert outcome.results == ("verified",)


def test_the_points_cover_every_phase(outcomes: dict[str, Future[Outcome]]) -> None:
    seen = {phase for future in outcomes.values() for phase in future.result(200).phases_after_death}
    assert seen == {"intent", "acting", "verifying", "closed"}


def test_a_container_that_a_person_stopped_while_we_were_dead_stays_stopped(
    tmp_path: Path, client: Any, hands: Hands
) -> None:
    stage = Stage(tmp_path, client, hands.run())
    try:
        stage.start("after_acted")
        assert stage.wait_for_death() == 137
        assert stage.starts() == 1
        stage.container.stop(timeout=1)
        stage.start()
        (attempt,) = stage.wait_closed(1, 60)
        assert attempt["result"] == "failed"
        assert "nothing starts it" in attempt["detail"]
        stage.verdict = lambda _: "stuck"
        stage.wait_decision("container_exited")
        time.sleep(3)
        assert not stage.state()["Running"]
        assert stage.starts() == 1
        until("one page", lambda: [n for n in stage.notices if n["event"] == "latched"])
    finally:
        stage.close()
