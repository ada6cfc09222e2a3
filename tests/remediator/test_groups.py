"""Containers that are restarted together, in order, and what may happen between one and the next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llm_remediator.containers import Selector
from llm_remediator.outcome import Outcome
from llm_remediator.rules import Backend, Target
from remediator.world import Engine, World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Target `a` is the containers of `a` (head) and `b` (tail); `a` is stuck."""
    made = World(tmp_path, ("a", "b", "c"))
    group = Target("a", Backend.DOCKER, "local", (Selector(container="box-a"), Selector(container="box-b")), made.rules)
    made.config = replace(made.config, targets=(group, made.config.targets[2]))
    made.engines["a"].sick_since = made.clock.now - 400
    made.open()
    yield made
    await made.crash()


def after_head(world: World, then: Callable[[Engine], None]) -> None:
    """Something happens to the tail as soon as the head was restarted."""
    restart = world.docker.restart

    async def wrapped(container_id: str, *, stop_timeout: float) -> Outcome[None]:
        outcome = await restart(container_id, stop_timeout=stop_timeout)
        if container_id == world.engines["a"].id:
            then(world.engines["b"])
        return outcome

    world.docker.restart = wrapped  # type: ignore[method-assign]


def restarted(world: World) -> list[str]:
    return [name for _, name in world.docker.restarts]


async def detail(world: World) -> str:
    rows = await world.journal.run(lambda db: db.execute("SELECT detail FROM attempts ORDER BY id").fetchall())
    return str(rows[-1]["detail"])


async def test_in_order(world: World) -> None:
    await world.look()
    assert restarted(world) == ["a", "b"]
    assert await world.results() == ["verified"]


async def test_a_tail_that_ended_with_its_head_is_started(world: World) -> None:
    after_head(world, lambda tail: tail.stopped(world.clock.now))
    await world.look()
    assert restarted(world) == ["a"]
    assert [name for _, name in world.docker.starts] == ["b"]
    assert await world.results() == ["verified"]
    assert world.engines["b"].box.running


async def test_a_tail_that_cannot_be_started_latches(world: World) -> None:
    def ends(tail: Engine) -> None:
        tail.stopped(world.clock.now)
        tail.startable = False

    after_head(world, ends)
    await world.look()
    assert await world.results() == ["start_failed"]
    assert "ended with its leader" in await detail(world)
    assert world.inbox.events() == ["latched"]


async def test_a_tail_that_its_policy_restarted_is_not_restarted_again(world: World) -> None:
    after_head(world, lambda tail: tail.started(world.clock.now))
    await world.look()
    assert restarted(world) == ["a"]
    assert await world.results() == ["verified"]


async def test_a_tail_that_a_person_paused_stays_paused_and_a_person_is_told(world: World) -> None:
    def paused(tail: Engine) -> None:
        tail.box = replace(tail.box, paused=True, state="paused")

    after_head(world, paused)
    await world.look()
    assert restarted(world) == ["a"]
    assert await world.results() == ["failed"]
    assert "only a part of the group was restarted" in await detail(world)
    assert world.inbox.events() == ["latched"]


async def test_a_tail_that_a_person_stopped_long_before_is_not_started(world: World) -> None:
    after_head(world, lambda tail: tail.stopped(world.clock.now - 100))
    await world.look()
    assert world.docker.starts == []
    assert not world.engines["b"].box.running
    assert await world.results() == ["failed"]


async def test_a_host_that_is_away_for_a_while_does_not_leave_a_group_half_done(world: World) -> None:
    naps = 0
    passes = world.clock.sleep

    async def sleep(seconds: float) -> None:
        nonlocal naps
        naps += 1
        world.docker.reachable = naps > 5
        await passes(seconds)

    def away(_: Any) -> None:
        # Our own inspect of the head must still see it; the tail's comes after it.
        inspect = world.docker.inspect

        async def once(container_id: str) -> Any:
            found = await inspect(container_id)
            if container_id == world.engines["a"].id and naps == 0:
                world.docker.reachable = False
            return found

        world.docker.inspect = once  # type: ignore[method-assign]

    world.clock.sleep = sleep  # type: ignore[method-assign]
    after_head(world, away)
    await world.look()
    assert naps > 5
    assert restarted(world) == ["a", "b"]
    assert await world.results() == ["verified"]


async def test_a_head_that_changes_right_before_the_call_is_left_alone(world: World) -> None:
    inspect, looks = world.docker.inspect, 0

    async def counted(container_id: str) -> Any:
        nonlocal looks
        if container_id == world.engines["a"].id:
            looks += 1
            if await _intended(world) and looks > 3:
                head = world.engines["a"]
                head.box = replace(head.box, paused=True, state="paused")
        return await inspect(container_id)

    world.docker.inspect = counted  # type: ignore[method-assign]
    await world.look()
    assert restarted(world) == []
    assert await world.results() == ["withdrawn"]


async def test_a_crash_between_two_members_finishes_the_group_and_repeats_nothing(world: World) -> None:
    from llm_remediator import fault

    class Died(BaseException):
        pass

    marks = 0
    point = fault.point

    def die_at_second_mark(name: str) -> None:
        nonlocal marks
        marks += name == "after_acting"
        if marks == 2:
            marks = 3
            raise Died

    fault.point = die_at_second_mark  # type: ignore[assignment]
    try:
        await world.look()
        assert restarted(world) == ["a"]
        await world.crash()
        world.open()
        await world.look()
    finally:
        fault.point = point
    # The tail's mark was on disk: its call may have been made, so it is not made again, and a person is told.
    assert restarted(world) == ["a"]
    assert await world.results() == ["failed"]
    assert world.inbox.events() == ["latched"]


async def _intended(world: World) -> bool:
    rows = await world.journal.run(lambda db: db.execute("SELECT 1 FROM attempts").fetchall())
    return bool(rows)
