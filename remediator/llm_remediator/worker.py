"""The loop: read the world, run the gates for every target that asks, begin what passed, and tidy up.

Level-triggered: it runs at start, every interval and when a webhook came, and each time reads everything
anew, so that a lost delivery, a cooldown's end or our own restart changes nothing but the time.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from llm_common.guard import Guard
from llm_remediator import journal_approvals, journal_attempts, journal_audit, journal_targets
from llm_remediator.asking import Asking
from llm_remediator.audit import AuditLog
from llm_remediator.closing import Tally, latch_by_decision, settle_successes, simulate, stand_down
from llm_remediator.config import Config
from llm_remediator.evidence import evidence
from llm_remediator.examine import Examiner, Outside, Reports, fleet_members
from llm_remediator.hindsight import look_back
from llm_remediator.history import Attempt
from llm_remediator.journal_thread import JournalThread
from llm_remediator.policy import breaker, decide, explain
from llm_remediator.remedy import Remedy
from llm_remediator.rules import Mode, Target
from llm_remediator.service import StoreError
from llm_remediator.snapshot import Alert, Decision, FleetFacts, Snapshot, Verb
from llm_remediator.startwatch import StartWatch

T = TypeVar("T")
log = logging.getLogger("llm.remediator.worker")
PRUNE_EVERY = 3600.0
BURST = 0.5


class Worker:
    """Decides and acts. `told` is called when something was stored that people may be waiting for."""

    def __init__(
        self,
        config: Config,
        outside: Outside,
        journal: JournalThread,
        guard: Guard,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        self.tally = Tally()
        self.audit = AuditLog(config.audit_log)
        self.examiner = Examiner(config, outside, journal)
        self.asking = Asking(config, outside, journal)
        self.reports = Reports()
        self.snapshots: dict[str, Snapshot] = {}
        self.last_tick: float | None = None
        self.last_tick_mono: float | None = None
        self.breaker_reason = ""
        self.in_flight: dict[str, asyncio.Task[None]] = {}
        self.remedies: dict[str, Remedy] = {}
        self.foreign_starts: dict[str, int] = {}
        self.runtime_warnings: tuple[str, ...] = ()
        self.watchdog_warnings: tuple[str, ...] = ()
        self._config = config
        self._outside = outside
        self._journal = journal
        self._guard = guard
        self._told = told
        self._wake = asyncio.Event()
        self._costly = asyncio.Lock()
        self._starts = StartWatch(outside, journal)
        self._pruned_at: float | None = None
        self._strays: set[int] = set()

    def wake(self) -> None:
        """Something changed: look now rather than at the end of the interval."""
        self._wake.set()

    async def run(self) -> None:
        """The eternal task."""
        while True:
            await self.tick()
            try:
                async with asyncio.timeout(self._config.interval):
                    await self._wake.wait()
                # Deliveries come in bursts; one look answers all that came within a moment.
                await self._outside.clock.sleep(min(BURST, self._config.interval))
            except TimeoutError:
                pass
            self._wake.clear()

    async def tick(self) -> None:
        """One look at everything."""
        await self._take_up()
        pings = await asyncio.gather(*(runtime.ping() for runtime in self._outside.runtimes.values()))
        commands = self._outside.commands.warnings if self._outside.commands is not None else ()
        self.runtime_warnings = (*(w for ping in pings if ping.ok for w in ping.get().warnings), *commands)
        self.reports = await self.examiner.reports()
        self._starts.see(self.reports)
        await self._note_breaker()
        alerts = await self.asking.read(self.reports)
        await asyncio.gather(*(self._look(target, alerts.get(target.name)) for target in self._config.targets))
        await self._tidy()
        self.last_tick = self._outside.clock.wall()
        self.last_tick_mono = self._outside.clock.monotonic()

    async def drain(self) -> None:
        """Wait until nothing is in flight."""
        while self.in_flight:
            await asyncio.wait(list(self.in_flight.values()))
            await asyncio.sleep(0)

    # --- after our own start

    async def _take_up(self) -> None:
        """What is in flight and nobody's: left by the process before us, or by a task that died."""
        for attempt in await self._try_store(journal_attempts.unfinished) or ():
            if attempt.target in self.in_flight:
                continue
            target = self._config.target(attempt.target)
            if target is None and attempt.id not in self._strays:
                self._strays.add(attempt.id)
                log.error(
                    "attempt %d is of a target that is no longer configured; put it back until it is closed",
                    attempt.id,
                    extra={"target": attempt.target},
                )
            elif target is not None:
                log.warning("taking up attempt %d, phase %s", attempt.id, attempt.phase, extra={"target": target.name})
                remedy = self._remedy(target)
                self._fly(target, remedy, remedy.proceed(attempt.id))

    # --- one target

    async def _look(self, target: Target, alert: Alert | None) -> None:
        if target.name in self.in_flight:
            old = self.snapshots.get(target.name)
            members = old.members if old is not None else ()
            self.snapshots[target.name] = await self.examiner.assemble(target, alert, self.reports, members)
        else:
            members = await self.examiner.members(target)
            await self._starts.note(target, [m.container for m in members if m.container is not None])
            self.snapshots[target.name] = await self.examiner.assemble(target, alert, self.reports, members)
            await self._look_back(target, self.snapshots[target.name])
        if alert is None:
            return
        snapshot = self.snapshots[target.name]
        decided = decide(snapshot)
        if isinstance(decided, Decision):
            await self._record(snapshot, decided)
            return
        # One target at a time from here: two must not both find the last free place.
        async with self._costly:
            self.reports = await self.examiner.reports()
            snapshot, decision = await self.examiner.decide(target, alert, self.reports)
            self.snapshots[target.name] = snapshot
            if decision.verb is not Verb.ACT:
                await self._record(snapshot, decision)
                return
            try:
                remedy = self._remedy(target)
                attempt = await remedy.intend(snapshot, decision)
            except StoreError as error:
                log.error("not restarted: %s", error, extra={"target": target.name})  # noqa: TRY400
                return
            self._count(decision)
            self._fly(target, remedy, remedy.carry_out(attempt, snapshot, alert))

    async def _record(self, snapshot: Snapshot, decision: Decision) -> None:
        rules, mode = snapshot.target.rules, self._config.mode
        seen = decision if decision.evidence else replace(decision, evidence=evidence(snapshot))

        def write(db: sqlite3.Connection) -> tuple[bool, Attempt | None]:
            simulated = seen.verb is Verb.WOULD_ACT
            decided, new = journal_audit.record_decision(
                db, seen, mode=mode.value, gates=explain(snapshot), repeat=not simulated
            )
            journal_targets.touch(db, seen.at)
            if seen.verb is Verb.AWAITING_APPROVAL:
                journal_approvals.ask(db, seen, snapshot.incarnation, lasts=rules.approval_expires, mode=mode)
            if seen.verb is Verb.LATCH:
                latch_by_decision(db, seen, rules, mode)
            if seen.reason == "foreign_owner" and mode is Mode.ACT:
                stand_down(db, seen, mode)
            return new, simulate(db, seen, decided) if simulated else None

        try:
            new, simulated = await self._journal.run(write)
        except StoreError as error:
            log.error("decision not stored: %s", error, extra={"target": seen.target})  # noqa: TRY400
            return
        self._count(seen)
        if simulated is not None:
            self.tally.closed(simulated)
        if new:
            self.audit.write(
                "decision",
                at=seen.at,
                target=seen.target,
                decision=seen.verb,
                gate=seen.gate,
                reason=seen.reason,
                text=seen.text,
                evidence=seen.evidence,
            )
            log.info("%s (%s): %s", seen.verb, seen.reason, seen.text, extra={"target": seen.target})
        self._told()

    def _count(self, decision: Decision) -> None:
        self.tally.decisions[decision.target, decision.verb.value, decision.reason] += 1

    def _remedy(self, target: Target) -> Remedy:
        return Remedy(self._config, target, self._outside, self._journal, self.examiner, self.tally, self.audit, self._told)

    def _fly(self, target: Target, remedy: Remedy, life: Coroutine[Any, Any, None]) -> None:
        task = self._guard.spawn(f"remedy:{target.name}", lambda: life, eternal=False)
        self.in_flight[target.name] = task
        self.remedies[target.name] = remedy

        def landed(_: asyncio.Task[None]) -> None:
            self.in_flight.pop(target.name, None)
            self.remedies.pop(target.name, None)
            self.wake()

        task.add_done_callback(landed)

    # --- what is noticed in passing

    async def _note_breaker(self) -> None:
        members = fleet_members(self._config, self.reports, frozenset(self.in_flight))
        self.breaker_reason = breaker(FleetFacts(members), self._config.fleet)
        if self.breaker_reason:
            now = self._outside.clock.wall()
            await self._try_store(lambda db: journal_targets.remember(db, "breaker_last_open", now))

    async def _look_back(self, target: Target, snapshot: Snapshot) -> None:
        now = snapshot.now
        ill = snapshot.report is not None and snapshot.report.state in target.rules.restart_on

        def write(db: sqlite3.Connection) -> list[Attempt]:
            if journal_targets.clear_due_latch(db, target.name, at=now):
                log.warning("the latch came off by itself, once", extra={"target": target.name})
            attempts = journal_attempts.attempts(db, target=target.name)
            look_back(db, attempts, snapshot)
            return settle_successes(db, attempts, target.rules, self._config.mode, ill=ill, at=now)

        for attempt in await self._try_store(write) or ():
            self.tally.closed(attempt)
            self._told()

    async def _tidy(self) -> None:
        now = self._outside.clock.wall()
        self.foreign_starts = await self._try_store(journal_targets.count_foreign) or self.foreign_starts
        if self._pruned_at is None or now - self._pruned_at >= PRUNE_EVERY:
            self._pruned_at = now
            await self._look_for_watchdogs()
            await self._try_store(lambda db: journal_audit.prune(db, at=now, keep=self._config.keep))

    async def _look_for_watchdogs(self) -> None:
        warnings = []
        for runtime in self._outside.runtimes.values():
            found = await runtime.watchdogs()
            warnings += [
                f"{name} on {runtime.host} restarts containers too: see that it leaves these targets alone"
                for name in found.value or ()
            ]
        self.watchdog_warnings = tuple(warnings)

    async def _try_store(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """For what can be noted next time: a fault is the journal gate's affair."""
        try:
            return await self._journal.run(work)
        except StoreError:
            return None
