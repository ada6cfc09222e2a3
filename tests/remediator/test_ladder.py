"""The ladder of remedies: the next rung after one that did not help, under the same gates, budget and journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llm_remediator import fault
from llm_remediator.containers import Container, Match, Selector
from llm_remediator.history import Result
from llm_remediator.outcome import Outcome, Status, failed
from llm_remediator.policy import remedy
from llm_remediator.remedy_command import CommandRemedy
from llm_remediator.rules import Budget, Mode, Rules
from llm_remediator.settings import FixedCommand
from remediator.scenes import HOUR, ID, NOW, attempt, box, history, ready, target
from remediator.world import Clock, World

Make = Callable[..., World]
LADDER = Rules(remedies=("restart", "recreate"), cooldown=60.0, startup_grace=0.0, rearm_after=0.0)
THREE = replace(LADDER, remedies=("restart", "recreate", "reboot"))


@pytest.mark.parametrize(
    ("past", "expected"),
    [
        (history(), "restart"),
        (history(attempt(NOW - HOUR)), "recreate"),
        (history(attempt(NOW - HOUR, Result.RELAPSED)), "recreate"),
        (history(attempt(NOW - 600, Result.VERIFIED)), "recreate"),
        (history(attempt(NOW - 3 * HOUR, Result.RECOVERED)), "restart"),
        (history(attempt(NOW - HOUR, Result.WITHDRAWN)), "restart"),
        (history(attempt(NOW - HOUR, Result.ABANDONED)), "restart"),
        (history(attempt(NOW - 2 * HOUR), attempt(NOW - HOUR)), "reboot"),
        (history(*(attempt(NOW - n * HOUR) for n in (1, 2, 3, 4))), "reboot"),
        (history(attempt(NOW - 2 * HOUR), rearmed_at=NOW - HOUR), "restart"),
    ],
    ids=[
        "nothing tried", "failed", "relapsed", "ill again within min_healthy", "recovered long ago",
        "withdrawn: nothing was done", "abandoned: no call was made", "two failed",
        "the last rung stays", "a person re-armed",
    ],
)  # fmt: skip
def test_one_rung_up_after_each_attempt_that_did_not_help(past: Any, expected: str) -> None:
    assert remedy(ready(target=target(THREE), history=past)) == expected


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[World] = []

    def build(**settings: Any) -> World:
        command = FixedCommand("recreate", ("/usr/bin/docker", "compose", "up"), 90.0)
        world = World(tmp_path, ("a", "b"), **{"rules": LADDER, "commands": (command,), **settings})
        made.append(world)
        world.open()
        world.engines["a"].sick_since = world.clock.now - 400
        world.engines["a"].cured_by_restart = False
        world.engines["a"].relapses_after = 100.0
        return world

    yield build
    for world in made:
        await world.crash()


async def test_a_restart_that_did_not_help_is_followed_by_the_command_which_does(make: Make) -> None:
    world = make()
    await world.looks(3 * HOUR)
    assert len(world.docker.restarts) == 1
    assert [(name, who) for _, name, who in world.commands.ran] == [("recreate", "a")]
    assert await world.results() == ["relapsed", "recovered"]
    assert [n.text for n in world.inbox.notices if n.event == "acted"] == ["restarted box-a", "ran recreate for box-a"]
    acted = [d.text for d in await world.remediator.decisions(target="a") if d.decision == "act"]  # type: ignore[union-attr]
    assert [text.split(":")[0] for text in acted] == ["recreate", "restart"]


async def test_a_command_that_cannot_be_run_is_shown_before_it_is_needed(make: Make) -> None:
    world = make()
    world.commands.warnings = ("command recreate: /usr/bin/docker is not there",)
    await world.look()
    assert world.commands.warnings[0] in world.remediator.overview().warnings  # type: ignore[union-attr]


async def test_nothing_helps_budget_then_one_latch(make: Make) -> None:
    world = make(rules=replace(LADDER, budget=Budget(3, 6 * HOUR)))
    world.engines["a"].cured_by_recreate = False
    await world.looks(5 * HOUR)
    assert (len(world.docker.restarts), len(world.commands.ran)) == (1, 2)
    assert world.inbox.events().count("latched") == 1


async def test_observe_climbs_too_and_touches_nothing(make: Make) -> None:
    world = make(mode=Mode.OBSERVE)
    await world.looks(2 * HOUR)
    assert (world.docker.restarts, world.commands.ran) == ([], [])
    rows = await world.journal.run(lambda db: db.execute("SELECT remedy FROM attempts ORDER BY id").fetchall())
    assert [row["remedy"] for row in rows] == ["restart", "recreate", "recreate"]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("nothing", "recreate was run, but the restart had no effect"),
        ("refused", "recreate ended with 1"),
        ("gone", "recreate was run, but box-a no longer exists"),
    ],
)
async def test_a_command_without_effect_is_for_a_person(make: Make, how: str, words: str) -> None:
    world = make()
    world.commands.script.append(how)
    await world.looks(2 * HOUR)
    assert await world.results() == ["relapsed", "failed"]
    assert len(world.commands.ran) == 1
    assert [words in n.text for n in world.inbox.notices if n.event == "latched"] == [True]


async def test_a_crash_while_the_command_runs_is_reconciled_and_it_is_not_run_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make()
    await world.look()
    assert await world.results() == ["verified"]

    class Died(BaseException):
        pass

    def die(name: str) -> None:
        if name == "after_call" and world.commands.ran:
            monkeypatch.setattr(fault, "point", lambda _: None)
            raise Died

    monkeypatch.setattr(fault, "point", die)
    while not world.commands.ran:
        await world.look()
    await world.crash()
    world.open()
    await world.looks(HOUR)
    assert len(world.commands.ran) == 1
    assert await world.results() == ["relapsed", "verified"]


# --- following a container that was made anew


class Shelf:
    """Containers by id, and what the selector finds."""

    warnings = ()

    def __init__(self) -> None:
        self.boxes: dict[str, Container] = {ID: box()}
        self.found: tuple[str, ...] = (ID,)
        self.calls: list[tuple[str, str]] = []

    async def inspect(self, container_id: str) -> Outcome[Container]:
        known = self.boxes.get(container_id)
        return Outcome(Status.OK, known) if known is not None else failed(Status.NOT_FOUND, "no such container")

    async def find(self, selector: Selector) -> Outcome[tuple[Match, ...]]:
        return Outcome(Status.OK, tuple(Match(i, f"name-{i[:2]}", "running") for i in self.found))

    async def restart(self, container_id: str, *, stop_timeout: float) -> Outcome[None]:
        self.calls.append(("restart", container_id))
        return Outcome(Status.OK)

    async def start(self, container_id: str) -> Outcome[None]:
        self.calls.append(("start", container_id))
        return Outcome(Status.OK)

    async def carry_out(self, name: str, container_id: str) -> Outcome[None]:
        self.calls.append((name, container_id))
        return Outcome(Status.OK)


NEW, MEMBER = "cd" * 32, "ef" * 32


def remedy_of(shelf: Shelf, clock: Clock) -> CommandRemedy:
    selectors = {ID: Selector(container="vllm"), MEMBER: Selector(container="ray")}
    return CommandRemedy("recreate", shelf, shelf, selectors, clock, 90.0)  # type: ignore[arg-type]


async def test_the_container_in_its_place_is_found_and_the_start_is_of_that_one() -> None:
    shelf, clock = Shelf(), Clock()
    following = remedy_of(shelf, clock)
    assert (await following.inspect(ID)).get().id == ID
    shelf.boxes, shelf.found = {NEW: box(id=NEW, state="exited", running=False)}, (NEW,)
    assert (await following.inspect(ID)).get().id == NEW
    await following.start(ID)
    assert shelf.calls == [("start", NEW)]


@pytest.mark.parametrize("found", [(), (NEW, MEMBER)], ids=["none", "two"])
async def test_none_or_two_is_a_recreate_under_way_until_its_time_is_over(found: tuple[str, ...]) -> None:
    shelf, clock = Shelf(), Clock()
    following = remedy_of(shelf, clock)
    shelf.boxes, shelf.found = {}, found
    assert (await following.inspect(ID)).status is Status.UNAVAILABLE
    clock.advance(89)
    assert (await following.inspect(ID)).status is Status.UNAVAILABLE
    clock.advance(1)
    assert (await following.inspect(ID)).status is Status.NOT_FOUND


async def test_the_command_runs_once_for_a_group_whose_other_members_are_restarted() -> None:
    shelf = Shelf()
    following = remedy_of(shelf, Clock())
    await following.restart(ID, stop_timeout=1.0)
    await following.restart(MEMBER, stop_timeout=1.0)
    assert shelf.calls == [("recreate", ID), ("restart", MEMBER)]


async def test_without_commands_nothing_is_done_in_their_place() -> None:
    shelf = Shelf()
    following = CommandRemedy("recreate", None, shelf, {ID: Selector(container="vllm")}, Clock(), 90.0)  # type: ignore[arg-type]
    assert (await following.restart(ID, stop_timeout=1.0)).status is Status.UNAVAILABLE
    assert shelf.calls == []
