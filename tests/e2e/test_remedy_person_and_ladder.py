"""A person's approval, and a command that makes the container anew, against real Docker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from e2e.remedy_stage import Stage
from e2e.tiny_docker import IMAGE, SOCKET, Hands, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
Make = Callable[..., Stage]


@pytest.fixture
def make(client: Any, hands: Hands, tmp_path: Path) -> Iterator[Make]:
    made: list[Stage] = []

    def build(**settings: Any) -> Stage:
        stage = Recreated(tmp_path, client, hands.run(), **settings)
        made.append(stage)
        return stage

    yield build
    for stage in made:
        stage.close()
        stage.remove()


class Recreated(Stage):
    """A container that is known by its name, since its id changes; only a new id helps."""

    def __init__(self, folder: Path, client: docker.DockerClient, container: Any, **settings: Any) -> None:
        self.runs = folder / "runs"
        self.script = folder / "recreate"
        command = {"argv": [str(self.script)], "timeout": "20s"}
        super().__init__(folder, client, container, **({"commands": {"recreate": command}} | settings))
        self.first = container.id
        self.verdict = lambda _: "busy" if self.container.id != self.first else "stuck"
        docker_cli = f"docker -H unix://{SOCKET}"
        new = f"{docker_cli} run -d --init --network none --name {container.name} {IMAGE} sh -c 'sleep 1000 & wait'"
        self.recreates(f"{docker_cli} rm -f {container.name} && {new}")

    def recreates(self, line: str) -> None:
        """What the command does, after it noted that it was run."""
        self.script.write_text(f"#!/bin/sh\necho run >> {self.runs}\n{line}\n")
        self.script.chmod(0o755)

    def state(self) -> dict[str, Any]:
        try:
            self.container = self.client.containers.get(self.container.name)
        except docker.errors.NotFound:
            return {"Running": False, "StartedAt": self.original}
        return super().state()

    def remove(self) -> None:
        """The container of now, which no other hands made."""
        try:
            self.client.containers.get(self.container.name).remove(force=True)
        except docker.errors.NotFound:
            return


LADDER = {"remedies": ["restart", "recreate"], "verify_within": "3s", "cooldown": "1s", "cooldown_max": "2s"}


def test_the_command_is_the_second_remedy_and_its_new_container_is_verified(make: Make) -> None:
    stage = make(defaults=LADDER)
    stage.start()
    first, second = stage.wait_closed(2)
    assert [(a["remedy"], a["result"]) for a in (first, second)] == [("restart", "failed"), ("recreate", "verified")]
    assert stage.state()["Running"]
    assert stage.container.id != stage.first
    assert stage.runs.read_text() == "run\n"
    acted = [n["text"] for n in stage.notices if n["event"] == "acted"]
    assert acted == [f"restarted {stage.container.name}", f"ran recreate for {stage.container.name}"]


def test_a_kill_while_the_command_runs_is_reconciled_by_the_container_that_it_made(make: Make) -> None:
    stage = make(defaults=LADDER | {"remedies": ["recreate"], "verify_within": "30s"})
    stage.script.write_text(stage.script.read_text().replace("echo", "sleep 2; echo", 1))
    stage.start("during_call")
    assert stage.wait_for_death() == 137
    stage.start()
    (attempt,) = stage.wait_closed(1, 60)
    assert (attempt["remedy"], attempt["result"]) == ("recreate", "verified")
    assert stage.runs.read_text() == "run\n"


def test_a_command_that_leaves_no_container_is_latched_and_paged(make: Make) -> None:
    stage = make(defaults=LADDER | {"remedies": ["recreate"]})
    stage.recreates(f"docker -H unix://{SOCKET} rm -f {stage.container.name}; exit 3")
    stage.start()
    (attempt,) = stage.wait_closed(1, 60)
    assert attempt["result"] == "failed"
    assert "recreate was run, but" in attempt["detail"]
    assert "recreate ended with 3" in attempt["detail"]
    until("one page", lambda: [n["event"] for n in stage.notices] == ["latched"])
    time.sleep(2)
    assert stage.runs.read_text() == "run\n"


def test_nothing_happens_before_a_person_approved_and_one_restart_after_it_whatever_dies(make: Make) -> None:
    stage = make(defaults={"approve": True})
    stage.verdict = None
    stage.start()
    stage.wait_decision("awaiting_approval")
    until("people are told", lambda: [n["event"] for n in stage.notices] == ["awaiting_approval"])
    time.sleep(3)
    assert stage.starts() == 0
    assert stage.proofs <= 1, "an open question is not proven at every look"
    path = "/api/v1/targets/engine/approve"
    assert stage.post(path, {}) == 400
    assert stage.post(path, {"by": "kim"}) == 200
    stage.stop(kill=True)
    stage.start()
    (attempt, *more) = stage.wait_closed()
    # Killed between intent and call it is never resumed by itself, and the approval is used up.
    if attempt["result"] == "abandoned":
        stage.wait_decision("awaiting_approval")
    else:
        assert attempt["result"] == "verified"
        assert stage.starts() == 1
    assert more == []
