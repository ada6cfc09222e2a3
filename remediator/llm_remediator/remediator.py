"""The running remediator behind the web server: `service.Service` over worker, journal and courier."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from llm_common.guard import Guard
from llm_remediator import journal_approvals, journal_audit, journal_targets
from llm_remediator.config import Config
from llm_remediator.courier import Courier
from llm_remediator.diagnose import capture
from llm_remediator.evidence import evidence
from llm_remediator.examine import Outside
from llm_remediator.history import Approval, Pause, Result
from llm_remediator.journal_thread import JournalThread
from llm_remediator.policy import decide, explain
from llm_remediator.ports import Notifier
from llm_remediator.rules import Target
from llm_remediator.service import (
    Counters,
    DecisionView,
    Delivery,
    Explanation,
    NotPossibleError,
    Overview,
    StoreError,
    TargetView,
    UnknownTargetError,
)
from llm_remediator.snapshot import Decision, Fact, Snapshot, Verb
from llm_remediator.views import as_if_firing, explanation, target_view, unseen
from llm_remediator.worker import Worker

log = logging.getLogger("llm.remediator")
STRANGERS_NAMED = 100
STALE_AFTER = 10
"""Intervals without a finished look after which the process calls itself unhealthy."""


class Remediator:
    """Owns the background tasks; `start` them, serve it, `stop` it."""

    def __init__(
        self,
        config: Config,
        outside: Outside,
        journal: JournalThread,
        notifiers: Sequence[Notifier] = (),
        version: str = "",
    ) -> None:
        self.guard = Guard()
        self._config = config
        self._outside = outside
        self._journal = journal
        self._version = version
        self.courier = Courier(journal, notifiers, outside.clock)
        self.worker = Worker(config, outside, journal, self.guard, self.courier.wake)
        self._strangers: set[str] = set()
        self._started_at = outside.clock.wall()
        self._started_mono = outside.clock.monotonic()

    @property
    def _known(self) -> frozenset[str]:
        return frozenset(target.name for target in self._config.targets)

    def start(self) -> None:
        """Begin to look and to act."""
        self.guard.spawn("worker", self.worker.run)
        self.guard.spawn("courier", self.courier.run)

    async def stop(self) -> None:
        """End the tasks. Attempts stay as they are in the journal; the next start takes them up."""
        await self.guard.stop()

    # --- what comes in

    async def accept(self, delivery: Delivery) -> None:
        """Store durably, then wake the worker."""
        now = self._outside.clock.wall()
        await self._journal.run(lambda db: journal_audit.store_delivery(db, delivery, self._known, at=now))
        for alert in delivery.alerts:
            if alert.target not in self._known and alert.labels.get("remediate") == "restart":
                self._unknown(alert.target, delivery.sender)
        self.worker.wake()

    def _unknown(self, name: str, sender: str) -> None:
        """An alert for a target that is not configured: counted without its name, which is not ours to trust."""
        self.worker.tally.decisions["", "skip", "unknown_target"] += 1
        if name not in self._strangers and len(self._strangers) < STRANGERS_NAMED:
            self._strangers.add(name)
            log.warning("no target %r in the configuration; its alert is ignored", name[:200], extra={"sender": sender})

    async def pause(self, target: str | None, *, seconds: float, reason: str, by: str) -> float:
        """Pause one target, or all."""
        if target is not None:
            self._target(target)
        now = self._outside.clock.wall()
        new = Pause(target, now + seconds, reason, by)
        await self._journal.run(lambda db: journal_targets.pause(db, new, at=now))
        self.worker.audit.write("pause", at=now, target=target, by=by, until=new.until, reason=reason)
        self.worker.wake()
        return new.until

    async def resume(self, target: str | None, *, by: str) -> None:
        """End a pause; that of all leaves those of single targets."""
        if target is not None:
            self._target(target)
        now = self._outside.clock.wall()
        ended = await self._journal.run(lambda db: journal_targets.resume(db, target, at=now, by=by))
        if not ended:
            raise NotPossibleError(f"{target or 'the remediator'} is not paused")
        self.worker.audit.write("resume", at=now, target=target, by=by)
        self.worker.wake()

    async def rearm(self, target: str, *, by: str) -> None:
        """Take the latch off, and forgive failures, budget, foreign restarts and a clock that went back."""
        known = self._target(target)
        now = self._outside.clock.wall()

        def write(db: sqlite3.Connection) -> None:
            refusing = {name for name in ("latched", "foreign_owner", "budget", "clock") if self._refuses(known, name)}
            latch = journal_targets.latch(db, target, simulated=True)
            if latch is None and not refusing:
                raise NotPossibleError(f"{target} is not latched; there is nothing to re-arm")
            journal_targets.rearm(db, target, at=now, by=by)

        await self._journal.run(write)
        self.worker.audit.write("rearm", at=now, target=target, by=by)
        self.worker.wake()

    async def approve(self, target: str, *, request: int | None, by: str) -> float:
        """Approve what the last look asked for; every gate is asked again before anything is done."""
        known = self._target(target)
        now = self._outside.clock.wall()
        why_not = self._nothing_to_approve(target)

        def write(db: sqlite3.Connection) -> Approval:
            journal_targets.touch(db, now)
            return journal_approvals.approve(
                db, target, request=request, by=by, at=now, lasts=known.rules.approval_expires, why_not=why_not
            )

        given = await self._journal.run(write)
        self.worker.audit.write("approve", at=now, target=target, by=by, remedy=given.remedy, until=given.expires_at)
        self.worker.wake()
        return given.expires_at

    def _nothing_to_approve(self, target: str) -> str:
        """Why the last look does not ask a person, or the empty string."""
        last = self.worker.snapshots.get(target)
        if last is None:
            return "it was not looked at yet"
        decided = decide(last)
        if isinstance(decided, Fact):
            return "it is being proven"
        return "" if decided.verb is Verb.AWAITING_APPROVAL else decided.text

    # --- what is shown

    def overview(self) -> Overview:
        """The remediator itself."""
        fault = self._journal.fault
        pauses = [p for s in self.worker.snapshots.values() for p in s.pauses if p.target is None]
        now = self._outside.clock.wall()
        pause = max((p for p in pauses if p.until > now), key=lambda p: p.until, default=None)
        return Overview(
            mode="observe" if fault else self._config.mode.value,
            configured_mode=self._config.mode.value,
            mode_reason=fault,
            version=self._version,
            started_at=self._started_at,
            paused_until=pause.until if pause is not None else None,
            pause_reason=pause.reason if pause is not None else "",
            breaker_open=bool(self.worker.breaker_reason),
            breaker_reason=self.worker.breaker_reason,
            journal_writable=not fault,
            last_reconcile=self.worker.last_tick,
            exporter_up=not self.worker.reports.fault,
            trigger=self._config.trigger,
            docker_up={runtime.host: runtime.health.up for runtime in self._outside.runtimes.values()},
            alertmanager_up=dict(self.worker.asking.alertmanager_up),
            notify_failures=self.courier.failures,
            task_deaths=dict(self.guard.deaths),
            warnings=(*self.worker.runtime_warnings, *self.worker.watchdog_warnings),
        )

    def targets(self) -> Sequence[TargetView]:
        """All targets in the order of the configuration."""
        now = self._outside.clock.wall()
        views = []
        for target in self._config.targets:
            snapshot = self.worker.snapshots.get(target.name)
            remedy = self.worker.remedies.get(target.name)
            phase = remedy.phase if remedy is not None else ""
            views.append(target_view(snapshot, now, phase) if snapshot is not None else unseen(target))
        return views

    def counters(self) -> Counters:
        """Counts since this process started; foreign starts since the journal began."""
        tally = self.worker.tally
        zeros = {(t.name, r.value): 0 for t in self._config.targets for r in Result}
        return Counters(
            decisions=dict(tally.decisions),
            actions={**zeros, **tally.actions},
            foreign_starts={**{t.name: 0 for t in self._config.targets}, **self.worker.foreign_starts},
            downtimes={name: tuple(values) for name, values in tally.downtimes.items()},
        )

    async def decisions(
        self, *, target: str | None = None, since: float | None = None, limit: int = 100
    ) -> Sequence[DecisionView]:
        """Newest first."""
        return await self._journal.run(lambda db: journal_audit.decisions(db, target=target, since=since, limit=limit))

    async def explain(self, target: str) -> Explanation:
        """Every gate's answer now, were the alert firing; costly questions are not asked."""
        snapshot = await self._fresh(self._target(target), "explain")
        return explanation(snapshot, explain(snapshot), evidence(snapshot))

    async def drill(self, target: str) -> Explanation:
        """Ask everything, capture the diagnostics, and stop before the restart call."""
        known = self._target(target)
        snapshot = await self._fresh(known, "drill")
        if snapshot.containers:
            for fact in Fact:
                snapshot = as_if_firing(await self.worker.examiner.gather(fact, snapshot), "drill")
        captured = await capture(self._config.diagnostics, self._outside.runtime(known), snapshot)
        results = explain(snapshot)
        shown = explanation(snapshot, results, {**evidence(snapshot), "captured": sorted(captured)})
        decided = decide(snapshot)
        if isinstance(decided, Decision):
            drilled = replace(decided, evidence=dict(shown.evidence), text=f"drill, nothing was restarted: {decided.text}")
            try:
                await self._journal.run(
                    lambda db: journal_audit.record_decision(
                        db, drilled, mode=self._config.mode.value, gates=results, kind="drill", repeat=False
                    )
                )
            except StoreError:
                return shown  # the journal gate in it says what is wrong
        return shown

    def healthy(self) -> tuple[bool, str]:
        """Red when a task died or the worker hangs."""
        if not self.guard.healthy:
            return False, f"background tasks died: {', '.join(self.guard.deaths)}"
        last = self.worker.last_tick_mono if self.worker.last_tick_mono is not None else self._started_mono
        silent = self._outside.clock.monotonic() - last
        if silent > max(300.0, STALE_AFTER * self._config.interval):
            return False, f"the worker has not finished a look for {silent:.0f} s"
        return True, "ok"

    def ready(self) -> tuple[bool, str]:
        """Ready once it has looked at everything, and while the journal works."""
        if self._journal.fault:
            return False, self._journal.fault
        if self.worker.last_tick is None:
            return False, "the first look at all targets is not finished"
        return True, "ok"

    async def _fresh(self, target: Target, source: str) -> Snapshot:
        examiner = self.worker.examiner
        last = self.worker.snapshots.get(target.name)
        snapshot = await examiner.snapshot(target, last.alert if last is not None else None, await examiner.reports())
        return as_if_firing(snapshot, source)

    def _refuses(self, target: Target, gate: str) -> bool:
        last = self.worker.snapshots.get(target.name)
        return last is not None and any(r.gate == gate and r.answer.passed is False for r in explain(last))

    def _target(self, name: str) -> Target:
        target = self._config.target(name)
        if target is None:
            raise UnknownTargetError(name)
        return target
