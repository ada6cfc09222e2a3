"""Whatever happens, in whatever order: what the remediator never does, checked at the moment of each restart call.

Hypothesis chooses engines that hang and recover, restarts that go wrong, other people's restarts, silences, pauses,
crashes at any point, second copies, and clocks that jump.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llm_remediator import fault, journal_approvals, journal_targets
from llm_remediator.journal_store import JournalLockedError, reading
from llm_remediator.journal_thread import JournalThread
from llm_remediator.rules import Budget, FleetRules, Rules
from llm_remediator.service import Delivery, NotPossibleError, ReceivedAlert
from remediator.world import Engine, World

RULES = Rules(
    cooldown=600.0,
    cooldown_max=2400.0,
    budget=Budget(2, 7200.0),
    startup_grace=120.0,
    verify_within=300.0,
    min_healthy=1800.0,
    remedies=("restart", "recreate"),
)
NAMES = ("a", "b", "c", "d", "e", "f")
ASKING = ("e", "f")
"""Nothing may be done to these without a person's word."""
names = st.sampled_from(NAMES)


class Died(BaseException):
    """kill -9, as far as one process can do it to itself."""


class Never(RuleBasedStateMachine):
    """Six engines, one remediator, one journal."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="never-"))
        self.loop = asyncio.new_event_loop()
        fleet = FleetRules(max_concurrent=1, max_unhealthy=0.9, budget=Budget(1000, 3600.0), storm_cooldown=0.0)
        pause_file = str(self.folder / "pause")
        asking = dict.fromkeys(ASKING, replace(RULES, approve=True, approval_expires=900.0))
        self.world = World(
            self.folder, NAMES, rules=RULES, rules_of=asking, fleet=fleet, interval=30.0, pause_file=pause_file
        )
        self.world.docker.before_restart = self.witness
        self.world.commands.before_command = self.witness_command
        self.approved: dict[int, tuple[str, float]] = {}
        """The incarnation that a person was asked about, and until when the word holds; gone once it was used."""
        self.wrong: list[str] = []
        self.paused_until: dict[str | None, float] = {}
        self.forgiven: dict[str, float] = {}
        self.acts: dict[str, list[float]] = {name: [] for name in NAMES}
        self.others: dict[str, list[float]] = {name: [] for name in NAMES}
        self.calls_for_attempt: dict[tuple[str, str], int] = {}
        self.fault_at = ""
        self._point = fault.point
        fault.point = self.maybe_die  # type: ignore[assignment]
        self.world.open()

    # --- plumbing

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def maybe_die(self, name: str) -> None:
        if self.fault_at == name:
            self.fault_at = ""
            raise Died(name)

    async def _look(self, seconds: float) -> None:
        world = self.world
        assert world.remediator is not None
        try:
            await world.look(seconds)
            died = "remedy" in world.remediator.guard.deaths
        except Died:
            died = True
        if died:
            await world.crash()
            world.open()

    # --- what may never be

    def witness(self, engine: Engine) -> None:
        """An assertion inside a background task would only end that task."""
        try:
            self.judge(engine)
        except AssertionError as error:
            self.wrong.append(str(error))

    def witness_command(self, engine: Engine) -> None:
        """The second remedy is as bound as the first, and comes after it."""
        since = self.forgiven.get(engine.name, 0.0)
        if not any(t > since for t in self.acts[engine.name]):
            self.wrong.append(f"{engine.name}: the second remedy before the first")
        self.witness(engine)

    @invariant()
    def no_restart_was_wrong(self) -> None:
        assert self.wrong == []

    def judge(self, engine: Engine) -> None:
        """Called at the very moment of a restart call."""
        name, now = engine.name, self.world.clock.now
        assert name in self.world.exporter.proofs, f"{name}: no proof was ever asked for"
        at, state, incarnation = self.world.exporter.proofs[name]
        assert state == "stuck", f"{name}: the last proof said {state}"
        assert now - at <= 60, f"{name}: the proof is {now - at:.0f} s old"
        assert incarnation == engine.box.incarnation, f"{name}: proven of another incarnation"
        assert engine.sick_since is not None, f"{name}: it was not even ill"
        assert not engine.box.paused, f"{name}: a person paused its container"
        assert (engine.box.started_at or 0) + RULES.startup_grace < engine.sick_since
        for scope in (None, name):
            assert self.paused_until.get(scope, 0.0) <= now, f"{name}: paused"
        assert name not in self.world.alertmanager.silenced, f"{name}: silenced"
        assert self.world.alertmanager.reachable
        assert self.world.exporter.reachable
        forgiven = self.forgiven.get(name, 0.0)
        starts = [t for t in (*self.acts[name], *self.others[name]) if t > forgiven]
        window = [t for t in starts if t > now - RULES.budget.per]
        assert len(window) < RULES.budget.restarts, f"{name}: over budget: {window} at {now}"
        since = max([*self.acts[name], *self.others[name], engine.box.started_at or 0.0])
        assert now - since >= RULES.cooldown, f"{name}: in cooldown, {now - since:.0f} s after the last start"
        key = (name, engine.box.incarnation)
        self.calls_for_attempt[key] = self.calls_for_attempt.get(key, 0) + 1
        if name in ASKING:
            asked = self.beside(lambda db: journal_approvals.newest(db, name))
            assert asked.id in self.approved, f"{name}: nobody approved it, or the approval was used before"
            incarnation, until = self.approved.pop(asked.id)
            assert incarnation == engine.box.incarnation, f"{name}: approved for another incarnation"
            assert now < until, f"{name}: the approval had expired"
        latch = self.beside(lambda db: journal_targets.latch(db, name, simulated=False))
        assert latch is None, f"{name}: latched"
        self.acts[name].append(now)

    def beside(self, read: Callable[[sqlite3.Connection], Any]) -> Any:
        """Read the journal beside the remediator, as a person would."""
        with reading(self.world.config.journal) as connection:
            return read(connection)

    @invariant()
    def nothing_is_left_stopped_by_us(self) -> None:
        for engine in self.world.engines.values():
            engine.settle(self.world.clock.now)
            if not engine.box.running and not engine.startable:
                continue
            in_flight = self.world.remediator is not None and self.unfinished(engine.name)
            stopped_by_person = engine.box.error == "" and engine.box.exit_code == 0
            assert engine.box.running or in_flight or stopped_by_person, f"{engine.name} was left stopped"

    def unfinished(self, name: str) -> bool:
        rows = self.run(
            self.world.journal.run(
                lambda db: db.execute("SELECT 1 FROM attempts WHERE target = ? AND phase <> 'closed'", (name,)).fetchall()
            )
        )
        return bool(rows)

    # --- what may happen

    @rule(seconds=st.sampled_from([1.0, 30.0, 120.0, 700.0]))
    def look(self, seconds: float) -> None:
        self.run(self._look(seconds))

    @rule(name=names, again=st.booleans(), seconds=st.sampled_from([300.0, 700.0, 1300.0]))
    def hang_and_look(self, name: str, again: bool, seconds: float) -> None:
        """The common case, so that many sequences reach their budget."""
        self.world.engines[name].cured_by_restart = not again
        self.hang(name)
        for _ in range(6):
            self.run(self._look(seconds))

    @rule(name=names, relapses_after=st.sampled_from([130.0, 700.0]))
    def a_bad_day(self, name: str, relapses_after: float) -> None:
        """Hangs whenever it may."""
        self.world.engines[name].cured_by_restart = False
        self.world.engines[name].relapses_after = relapses_after
        self.hang(name)
        for _ in range(40):
            self.run(self._look(150.0))

    @rule(name=names)
    def hang(self, name: str) -> None:
        engine = self.world.engines[name]
        if engine.box.running and engine.sick_since is None:
            engine.sick_since = self.world.clock.now

    @rule(name=names)
    def comes_back(self, name: str) -> None:
        self.world.engines[name].sick_since = None

    @rule(name=names)
    def is_beyond_cure(self, name: str) -> None:
        self.world.engines[name].cured_by_restart = not self.world.engines[name].cured_by_restart

    @rule(name=names, how=st.sampled_from(["late", "half", "half_forever", "no_effect", "refused", "unavailable"]))
    def next_restart_goes(self, name: str, how: str) -> None:
        self.world.engines[name].script.append(how)

    @rule(name=names)
    def others_restart(self, name: str) -> None:
        engine, now = self.world.engines[name], self.world.clock.now
        engine.settle(now)
        if engine.box.running and not engine.box.paused:
            engine.stop_events(now)
            engine.started(now)
            self.others[name].append(now)
            # The remediator looks every interval: it learns of the start before the next one.
            self.run(self._look(1.0))

    @rule(name=names)
    def a_person_stops_it(self, name: str) -> None:
        engine = self.world.engines[name]
        engine.settle(self.world.clock.now)
        if engine.box.running and not self.unfinished(name):
            engine.stopped(self.world.clock.now)
            engine.box = replace(engine.box, exit_code=0)

    @rule(name=names)
    def a_person_starts_it(self, name: str) -> None:
        engine = self.world.engines[name]
        if not engine.box.running:
            engine.startable = True
            engine.started(self.world.clock.now)
            self.others[name].append(self.world.clock.now)
            self.run(self._look(1.0))

    @rule(name=st.one_of(st.none(), names), seconds=st.sampled_from([60.0, 1000.0]))
    def pause(self, name: str | None, seconds: float) -> None:
        assert self.world.remediator is not None
        self.paused_until[name] = self.run(self.world.remediator.pause(name, seconds=seconds, reason="", by="test"))

    @rule(what=st.sampled_from(["comes_back", "silence", "others_restart", "pause", "a_person_pauses", "a_person_stops"]))
    def during_the_next_proof(self, what: str) -> None:
        """The proof is true when it is made, and something happens before the call."""

        def happens(engine: Engine) -> None:
            self.world.exporter.during_proof = lambda _: None
            now = self.world.clock.now
            if what == "comes_back":
                engine.sick_since = None
            elif what == "silence":
                self.world.alertmanager.silenced.add(engine.name)
            elif what == "others_restart":
                engine.cured_by_restart = False
                engine.started(now)
                self.others[engine.name].append(now)
            elif what == "pause":
                (self.folder / "pause").write_text("10m")
                os.utime(self.folder / "pause", (now, now))
                self.paused_until[None] = now + 600
            elif what == "a_person_pauses":
                engine.box = replace(engine.box, paused=True, state="paused")
            else:
                engine.stopped(now)
                engine.box = replace(engine.box, exit_code=0)

        self.world.exporter.during_proof = happens

    @rule(name=names)
    def a_person_pauses(self, name: str) -> None:
        engine = self.world.engines[name]
        if engine.box.running and not self.unfinished(name):
            paused = not engine.box.paused
            engine.box = replace(engine.box, paused=paused, state="paused" if paused else "running")

    @rule(name=names)
    def silence(self, name: str) -> None:
        self.world.alertmanager.silenced ^= {name}

    @rule(which=st.sampled_from(["alertmanager", "exporter", "docker"]), seconds=st.sampled_from([1.0, 600.0]))
    def outage(self, which: str, seconds: float) -> None:
        """It is away for two looks."""
        part = getattr(self.world, which)
        part.reachable = False
        self.run(self._look(1.0))
        if which != "docker" or not self.world.remediator.worker.in_flight:  # type: ignore[union-attr]
            self.run(self._look(seconds))
        part.reachable = True

    @rule(name=names)
    def rearm(self, name: str) -> None:
        assert self.world.remediator is not None
        try:
            self.run(self.world.remediator.rearm(name, by="test"))
        except NotPossibleError:
            return
        self.forgiven[name] = self.world.clock.now

    @rule(name=st.sampled_from(ASKING), patience=st.sampled_from([0, 4, 8]))
    def a_person_approves(self, name: str, patience: int) -> None:
        assert self.world.remediator is not None
        engine = self.world.engines[name]
        if patience:
            self.hang(name)
        for _ in range(patience):
            self.run(self._look(150.0))
        try:
            until = self.run(self.world.remediator.approve(name, request=None, by="kim"))
        except NotPossibleError:
            return
        answered = self.beside(lambda db: journal_approvals.newest(db, name))
        self.approved.setdefault(answered.id, (engine.box.incarnation, until))

    @rule(how=st.sampled_from(["restart", "nothing", "refused", "recreate"]))
    def next_command_goes(self, how: str) -> None:
        self.world.commands.script.append(how)

    @rule(name=names, count=st.integers(1, 5))
    def webhooks(self, name: str, count: int) -> None:
        assert self.world.remediator is not None
        labels = dict(self.world.alertmanager.alert(name).labels)
        alert = ReceivedAlert("firing", labels, {}, f"fp-{name}", self.world.clock.now, None)
        for _ in range(count):
            self.run(self.world.remediator.accept(Delivery((alert,), 0, "g", "r", "test")))

    @rule(point=st.sampled_from(fault.POINTS))
    def dies_at(self, point: str) -> None:
        self.fault_at = point

    @rule()
    def is_restarted(self) -> None:
        self.run(self.world.crash())
        self.world.open()

    @rule()
    @precondition(lambda self: self.world.remediator is not None)
    def a_second_copy_is_turned_away(self) -> None:
        second = JournalThread(self.world.config.journal)
        with pytest.raises(JournalLockedError):
            second.start()

    @rule(seconds=st.sampled_from([-3600.0, -30.0, 1800.0, 7200.0]))
    def the_clock_jumps(self, seconds: float) -> None:
        self.run(self._look(1.0))
        self.world.clock.jump(seconds)
        self.run(self._look(1.0))

    def teardown(self) -> None:
        fault.point = self._point
        self.run(self.world.crash())
        self.loop.close()
        shutil.rmtree(self.folder)


TestNever = Never.TestCase
TestNever.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestNever.pytestmark = [pytest.mark.timeout(300)]
