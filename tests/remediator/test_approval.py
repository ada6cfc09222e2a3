"""A person has the last word: asked once, only for what is proven, for one start of the container, and used once."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llm_remediator import journal_approvals
from llm_remediator.history import Approval
from llm_remediator.policy import decide, explain
from llm_remediator.rules import Budget, Mode, Rules
from llm_remediator.service import NotPossibleError, StoreError
from llm_remediator.snapshot import Decision, Fact, Snapshot, Verb
from remediator.scenes import NOW, attempt, box, history, proven, ready, target
from remediator.world import World

Make = Callable[..., World]
ASK = Rules(approve=True, approval_expires=900.0)
QUESTION = Approval(7, box().incarnation, "restart", asked_at=NOW - 60, proven_at=NOW - 60, text="restart awaits")
YES = replace(QUESTION, approved_by="kim", expires_at=NOW + 900)


def asking(approval: Approval | None, **changes: Any) -> Snapshot:
    return ready(target=target(ASK), history=history(approval=approval), **changes)


def verb_of(snapshot: Snapshot) -> Verb:
    decided = decide(snapshot)
    assert isinstance(decided, Decision)
    return decided.verb


@pytest.mark.parametrize(
    "approval",
    [
        None,
        replace(YES, incarnation="another"),
        replace(YES, remedy="recreate"),
        replace(YES, expires_at=NOW),
        replace(YES, attempt=3),
        replace(QUESTION, proven_at=NOW - 900),
    ],
    ids=["never asked", "another start", "another remedy", "expired", "used", "its proof is old"],
)
def test_without_a_word_that_fits_a_person_is_asked(approval: Approval | None) -> None:
    assert verb_of(asking(approval)) is Verb.AWAITING_APPROVAL


def test_nobody_is_asked_about_what_is_not_proven() -> None:
    assert decide(asking(None, processes=None, proof=None, witnesses=None)) is Fact.PROCESSES
    assert decide(asking(None, proof=None, witnesses=None)) is Fact.PROOF
    busy = decide(asking(None, proof=proven(state="busy")))
    assert isinstance(busy, Decision)
    assert busy.gate == "proof"


def test_an_open_question_costs_no_proof_and_a_granted_one_is_proven_again() -> None:
    assert verb_of(asking(QUESTION, processes=None, proof=None, witnesses=None)) is Verb.AWAITING_APPROVAL
    assert decide(asking(YES, proof=None, witnesses=None)) is Fact.PROOF
    assert verb_of(asking(YES, proof=proven(state="busy"))) is Verb.SKIP


def test_observe_asks_nobody() -> None:
    assert verb_of(asking(None, mode=Mode.OBSERVE)) is Verb.WOULD_ACT
    (answer,) = [r.answer.text for r in explain(asking(None, mode=Mode.OBSERVE)) if r.gate == "approval"]
    assert "a person would be asked" in answer


# --- over the journal


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[World] = []

    def build(**settings: Any) -> World:
        world = World(tmp_path, ("a", "b"), **{"rules": ASK, **settings})
        made.append(world)
        world.open()
        world.engines["a"].sick_since = world.clock.now - 400
        return world

    yield build
    for world in made:
        await world.crash()


async def approve(world: World, request: int | None = None, by: str = "kim") -> float:
    assert world.remediator is not None
    return await world.remediator.approve("a", request=request, by=by)


async def test_asked_once_approved_then_restarted_once(make: Make) -> None:
    world = make()
    await world.looks(3600)
    assert world.docker.restarts == []
    assert world.inbox.events() == ["awaiting_approval"]
    assert "llm-remediator approve a" in world.inbox.notices[0].text
    assert await world.decisions("a") == [("awaiting_approval", "awaiting_approval")]
    view = world.remediator.targets()[0]  # type: ignore[union-attr]
    assert (view.next_gate, view.approval_request) == ("approval", 1)
    for words in ("awaits a person's approval: stuck: told by the test", "asked 59m", "no answer yet"):
        assert words in view.awaiting_approval
    assert await approve(world, view.approval_request) == world.clock.now + 900
    await world.looks(4 * 3600)
    assert len(world.docker.restarts) == 1
    assert await world.results() == ["recovered"]
    assert world.remediator.targets()[0].awaiting_approval == ""  # type: ignore[union-attr]


async def test_an_open_question_asks_the_exporter_for_a_proof_every_quarter_of_an_hour(make: Make) -> None:
    world = make()
    proofs: list[float] = []
    world.exporter.during_proof = lambda _: proofs.append(world.clock.now)
    await world.looks(3600)
    assert 3 <= len(proofs) <= 5


async def test_an_approval_expires_unused_and_people_are_asked_again(make: Make) -> None:
    world = make()
    await world.look()
    await approve(world)
    await world.remediator.pause("a", seconds=1000, reason="", by="ann")  # type: ignore[union-attr]
    await world.looks(1500)
    assert world.docker.restarts == []
    assert world.inbox.events() == ["awaiting_approval"] * 2
    with pytest.raises(NotPossibleError, match="question 1 is over"):
        await approve(world, request=1)


async def test_an_approval_survives_our_end_and_is_used_once(make: Make) -> None:
    world = make(rules=replace(ASK, budget=Budget(5, 6 * 3600.0), cooldown=60.0, startup_grace=0.0))
    world.engines["a"].cured_by_restart, world.engines["a"].relapses_after = False, 100.0
    await world.look()
    await approve(world)
    await world.crash()
    world.open()
    await world.looks(3600)
    assert len(world.docker.restarts) == 1
    assert world.inbox.events().count("awaiting_approval") == 2


async def test_somebody_elses_restart_voids_it(make: Make) -> None:
    world = make(rules=replace(ASK, cooldown=10.0, startup_grace=0.0, approval_expires=3600.0))
    engine = world.engines["a"]
    engine.cured_by_restart, engine.relapses_after = False, 30.0
    await world.look()
    await approve(world)
    engine.stop_events(world.clock.now)
    engine.started(world.clock.now + 1)
    await world.looks(1200)
    assert world.docker.restarts == []
    assert world.inbox.events() == ["awaiting_approval"] * 2


async def test_an_engine_that_came_back_is_not_restarted_in_spite_of_the_approval(make: Make) -> None:
    world = make()
    await world.look()
    await approve(world)
    world.engines["a"].sick_since = None
    await world.looks(600)
    assert world.docker.restarts == []


async def test_a_withdrawn_attempt_leaves_the_approval_standing(make: Make) -> None:
    world = make()
    await world.look()
    await approve(world)
    count = 0

    def away(_: Any) -> None:
        nonlocal count
        count += 1
        world.alertmanager.reachable = count != 2  # the proof of the last check before the call

    world.exporter.during_proof = away
    await world.look()
    assert await world.results() == ["withdrawn"]
    world.alertmanager.reachable = True
    await world.looks(300)
    assert len(world.docker.restarts) == 1
    assert world.inbox.events() == ["awaiting_approval", "acted", "verified"]


async def test_each_rung_of_a_ladder_is_a_question_of_its_own(make: Make) -> None:
    world = make(rules=replace(ASK, remedies=("restart", "recreate"), cooldown=60.0, startup_grace=0.0))
    world.engines["a"].cured_by_restart, world.engines["a"].relapses_after = False, 100.0
    await world.look()
    await approve(world)
    await world.looks(1800)
    assert (len(world.docker.restarts), world.commands.ran) == (1, [])
    asked = [n.text for n in world.inbox.notices if n.event == "awaiting_approval"]
    assert [text.split()[0] for text in asked] == ["restart", "recreate"]
    await approve(world)
    await world.looks(1800)
    assert [name for _, name, _ in world.commands.ran] == ["recreate"]


async def test_fifty_clicks_at_once_are_one_approval(make: Make) -> None:
    world = make()
    await world.look()
    until = await asyncio.gather(*(approve(world, by=f"person {n}") for n in range(50)))
    assert len(set(until)) == 1
    await world.looks(3600)
    assert len(world.docker.restarts) == 1


async def test_what_cannot_be_approved_says_why(make: Make) -> None:
    world = make()
    with pytest.raises(NotPossibleError, match="not looked at yet"):
        await approve(world)
    await world.look()
    with pytest.raises(NotPossibleError, match="question 9 is over"):
        await approve(world, request=9)
    until = await approve(world)
    world.clock.advance(5)
    assert await approve(world, by="lee") == until, "the first word counts; a second changes nothing"
    world.engines["a"].sick_since = None
    await world.looks(1000)
    with pytest.raises(NotPossibleError, match="no alert with remediate=restart fires"):
        await approve(world)


async def test_a_second_use_is_refused_by_the_journal_itself(make: Make) -> None:
    world = make()
    await world.look()
    await approve(world)

    def use(db: sqlite3.Connection) -> None:
        given = journal_approvals.newest(db, "a")
        assert given is not None
        journal_approvals.use(db, given, 1)
        journal_approvals.use(db, given, 2)

    with pytest.raises(StoreError, match="was used already"):
        await world.journal.run(use)


async def test_it_is_counted_and_shown(make: Make) -> None:
    world = make()
    await world.look()
    assert world.remediator is not None
    assert world.remediator.counters().decisions["a", "awaiting_approval", "awaiting_approval"] == 1
    shown = await world.remediator.explain("a")
    assert (shown.decision, shown.reason) == ("awaiting_approval", "awaiting_approval")
    drilled = await world.remediator.drill("a")
    assert drilled.decision == "awaiting_approval"
    await approve(world)
    shown = await world.remediator.explain("a")
    assert "approved by kim" in next(g.text for g in shown.gates if g.name == "approval")


def test_attempts_in_a_row_do_not_hide_the_question() -> None:
    past = history(attempt(NOW - 4000), approval=QUESTION)
    assert verb_of(ready(target=target(ASK), history=past)) is Verb.AWAITING_APPROVAL
