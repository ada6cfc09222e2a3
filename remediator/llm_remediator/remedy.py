"""The life of one restart: intent, diagnostics, last check, one call, reconcile, proof that work flows, end.

Every step is on disk before it is made. From `acting` on, an attempt is only ever reconciled: the restart
call is made once, whatever its answer, and a crash at any point finds out by `inspect` what happened.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from functools import partial

from llm_remediator import fault, journal_approvals, journal_attempts, journal_targets
from llm_remediator.audit import AuditLog
from llm_remediator.closing import Closing, Tally, close, decision_of, record
from llm_remediator.config import Config
from llm_remediator.containers import Container
from llm_remediator.diagnose import capture
from llm_remediator.examine import Examiner, Outside
from llm_remediator.history import Attempt, Phase, Result, Step
from llm_remediator.journal_audit import put_notice, record_decision
from llm_remediator.journal_thread import JournalThread
from llm_remediator.ledger import Ledger
from llm_remediator.policy import explain
from llm_remediator.ports import Notice
from llm_remediator.remedy_command import CommandRemedy
from llm_remediator.restarting import POLL, Doctor, Restarting
from llm_remediator.rules import RESTART, Target
from llm_remediator.service import StoreError
from llm_remediator.snapshot import Alert, Decision, Snapshot, Verb
from llm_remediator.verification import WITNESS_WITHIN, Verification, patience, verify

log = logging.getLogger("llm.remediator.remedy")


class Remedy:
    """Carries out attempts on one target. `changed` is called after each stored step."""

    def __init__(
        self,
        config: Config,
        target: Target,
        outside: Outside,
        journal: JournalThread,
        examiner: Examiner,
        tally: Tally,
        audit: AuditLog,
        changed: Callable[[], None],
    ) -> None:
        self._config = config
        self._target = target
        self._outside = outside
        self._ledger = Ledger(journal, outside.clock, target.name)
        self._examiner = examiner
        self._tally = tally
        self._audit = audit
        self._changed = changed
        self._runtime = outside.runtime(target)
        self.phase = "intent"
        """intent, acting, verifying, closed: for people; the journal has the truth."""

    async def intend(self, snapshot: Snapshot, decision: Decision) -> int:
        """Write the decision and the intent in one transaction. `StoreError`: then nothing is done."""
        fault.point("before_intent")
        grace = self._grace(decision.remedy)
        steps = [self._step(i, box, grace) for i, box in enumerate(snapshot.containers)]

        def write(db: sqlite3.Connection) -> int:
            decided, _ = record_decision(db, decision, mode=snapshot.mode.value, gates=explain(snapshot), repeat=False)
            journal_targets.touch(db, decision.at)
            attempt = journal_attempts.open_attempt(
                db,
                self._target.name,
                at=decision.at,
                simulated=False,
                decision_id=decided,
                remedy=decision.remedy,
                steps=steps,
            )
            if self._target.rules.approve and snapshot.history.approval is not None:
                journal_approvals.use(db, snapshot.history.approval, attempt)
            return attempt

        attempt = await self._ledger.once(write)
        log.warning("intent to restart: %s", decision.text, extra={"target": self._target.name, "attempt": attempt})
        self._audit.write("intent", at=decision.at, target=self._target.name, attempt=attempt, text=decision.text)
        fault.point("after_intent")
        return attempt

    async def carry_out(self, attempt_id: int, snapshot: Snapshot, alert: Alert) -> None:
        """From the written intent to the end."""
        captured = await capture(self._config.diagnostics, self._runtime, snapshot)
        try:
            await self._ledger.once(lambda db: journal_attempts.keep_diagnostics(db, attempt_id, captured))
        except StoreError as error:
            # The intent is on disk but the call's own mark would not be: without it no call is made.
            log.error("the restart is given up: %s", error)  # noqa: TRY400 - the sentence says it all
            await self._close(attempt_id, Closing(Result.WITHDRAWN, f"not made: {error}"))
            return
        fault.point("after_diagnostics")
        reports = await self._examiner.reports()
        _, again = await self._examiner.decide(self._target, alert, reports, ignoring=attempt_id)
        fault.point("after_recheck")
        attempt = await self._ledger.attempt(attempt_id)
        if again.verb is not Verb.ACT or again.remedy != attempt.remedy:
            await self._ledger.store(lambda db: record(db, again, self._config.mode, "recheck"))
            await self._close(attempt_id, Closing(Result.WITHDRAWN, f"the last check said no: {again.text}"))
            return
        await self.proceed(attempt_id, fresh=True)

    async def proceed(self, attempt_id: int, *, fresh: bool = False) -> None:
        """Bring an attempt to its end, from whatever point it is at. `fresh`: no crash lies between."""
        attempt = await self._ledger.attempt(attempt_id)
        self.phase = attempt.phase.value
        if attempt.phase is Phase.INTENT and not fresh:
            text = "we ended between the intent and the call; nothing was touched, and it is not resumed"
            await self._close(attempt_id, Closing(Result.ABANDONED, text))
            return
        if attempt.phase in (Phase.INTENT, Phase.ACTING):
            restarting = Restarting(
                self._target.name,
                self._doctor(attempt),
                self._outside.clock,
                self._ledger,
                partial(self._marked, attempt_id),
            )
            for step in attempt.steps:
                closing = await restarting.bring_through(attempt_id, step)
                if closing is not None:
                    await self._close(attempt_id, _of_remedy(closing, attempt))
                    return
            attempt = await self._ledger.attempt(attempt_id)
            acted_at = max((s.acted_at for s in attempt.steps if s.acted_at is not None), default=None)
            if acted_at is None:
                await self._close(attempt_id, Closing(Result.ABANDONED, "no container had to be restarted any more"))
                return
            await self._ledger.store(
                lambda db: journal_attempts.update_attempt(db, attempt_id, phase=Phase.VERIFYING, acted_at=acted_at)
            )
            fault.point("after_acted")
        await self._verify(attempt_id)

    def _grace(self, remedy: str) -> float:
        """Seconds that a remedy may take to stop the engine: a command's own timeout, if it is one."""
        names = {remedy, *(s.command for s in self._target.selectors)}
        return max([self._target.rules.stop_timeout, *(c.timeout for c in self._config.commands if c.name in names)])

    def _doctor(self, attempt: Attempt) -> Doctor:
        if attempt.remedy == RESTART:
            return self._runtime
        selectors = {s.container_id: selector for s, selector in zip(attempt.steps, self._target.selectors, strict=False)}
        return CommandRemedy(
            attempt.remedy,
            self._outside.commands,
            self._runtime,
            selectors,
            self._outside.clock,
            self._grace(attempt.remedy),
        )

    def _step(self, ordinal: int, box: Container, grace: float) -> Step:
        # Never below the container's own grace: it is there because the engine needs it to drain.
        grace = max(grace, float(box.stop_timeout or 0))
        return Step(ordinal, self._target.host, box.id, box.name, box.started_at, box.started_at_raw, grace)

    def _marked(self, attempt_id: int, step: Step, at: float) -> None:
        self.phase = Phase.ACTING.value
        self._audit.write("acting", at=at, target=self._target.name, attempt=attempt_id, container=step.container_id)
        self._changed()

    # --- after it

    async def _verify(self, attempt_id: int) -> None:
        attempt = await self._ledger.attempt(attempt_id)
        self.phase = Phase.VERIFYING.value
        did = "restarted" if attempt.remedy == RESTART else f"ran {attempt.remedy} for"
        await self._say(attempt, "acted", f"{did} {', '.join(s.name for s in attempt.steps)}")
        doctor = self._doctor(attempt)
        acting_at = attempt.acting_at if attempt.acting_at is not None else attempt.created_at
        acted_at = attempt.acted_at if attempt.acted_at is not None else acting_at
        name = self._target.name
        earlier = await self._ledger.store(lambda db: journal_attempts.attempts(db, target=name, simulated=False))
        within = patience(earlier, self._target.rules.verify_within)
        while True:
            reported = await self._outside.exporter.target(self._target.name)
            boxes = [await doctor.inspect(s.container_id) for s in attempt.steps]
            verdict = verify(
                now=self._outside.clock.wall(),
                acting_at=acting_at,
                acted_at=acted_at,
                within=within,
                report=reported.value if reported.ok else None,
                report_fault=reported.detail or str(reported.status),
                containers=boxes,
                witness_within=min(WITNESS_WITHIN, self._target.rules.verify_within / 2),
            )
            if verdict.result is not None:
                await self._close(attempt_id, _closing(verdict, verdict.result))
                return
            await self._outside.clock.sleep(POLL)

    async def _say(self, attempt: Attempt, event: str, text: str) -> None:
        """Once, even if a crash lies between: what was told already is not told again."""
        now, mode = self._outside.clock.wall(), self._config.mode.value

        def write(db: sqlite3.Connection) -> None:
            decision = decision_of(db, attempt.id)
            told = db.execute("SELECT 1 FROM notices WHERE decision_id = ? AND event = ?", (decision, event)).fetchone()
            if told is None:
                put_notice(db, Notice(event, attempt.target, text, now, mode, decision, {"attempt": attempt.id}))

        await self._ledger.store(write)
        self._changed()

    async def _close(self, attempt_id: int, closing: Closing) -> None:
        fault.point("before_close")
        rules, now = self._target.rules, self._outside.clock.wall()
        closed = await self._ledger.store(
            lambda db: close(db, attempt_id, closing, rules=rules, mode=self._config.mode, at=now)
        )
        self._tally.closed(closed)
        self._audit.write(
            "closed", at=now, target=self._target.name, attempt=attempt_id, result=closed.result, text=closed.detail
        )
        log.warning("%s: %s", closing.result, closing.text, extra={"target": self._target.name, "attempt": attempt_id})
        fault.point("after_close")
        self._changed()


def _of_remedy(closing: Closing, attempt: Attempt) -> Closing:
    """After a command, a container that is gone, stopped or untouched is the command's failure, for a person to see."""
    ours = closing.result in (Result.RECREATED, Result.STOPPED_BY_OTHER, Result.UNKILLABLE)
    if attempt.remedy == RESTART or not ours:
        return closing
    return Closing(Result.FAILED, f"{attempt.remedy} was run, but {closing.text}", latch="remedy_failed")


def _closing(verdict: Verification, result: Result) -> Closing:
    if result is Result.WRONG_CONTAINER:
        return Closing(result, verdict.text, latch="wrong_container")
    return Closing(result, verdict.text, latch="exited_after_restart" if verdict.gave_up else "")
