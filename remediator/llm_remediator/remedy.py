"""The life of one restart: intent, diagnostics, last check, one call, reconcile, proof that work flows, end.

Every step is on disk before it is made. From `acting` on, an attempt is only ever reconciled: the restart
call is made once, whatever its answer, and a crash at any point finds out by `inspect` what happened.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from llm_remediator import fault, journal_attempts, journal_targets
from llm_remediator.audit import AuditLog
from llm_remediator.closing import Closing, Tally, close, decision_of, record
from llm_remediator.config import Config
from llm_remediator.diagnose import capture
from llm_remediator.examine import Examiner, Outside
from llm_remediator.journal_audit import put_notice, record_decision
from llm_remediator.journal_thread import JournalThread
from llm_remediator.model import Alert, Attempt, Backend, Decision, Phase, Result, Snapshot, Step, Target, Verb
from llm_remediator.policy import explain
from llm_remediator.ports import Container, Notice, Outcome, Status
from llm_remediator.reconcile import Found, Settled, settle
from llm_remediator.service import StoreError
from llm_remediator.verification import WITNESS_WITHIN, Verification, verify

T = TypeVar("T")
log = logging.getLogger("llm.remediator.remedy")
POLL = 2.0
STORE_AGAIN = 10.0
_OPEN = frozenset({Found.WAIT, Found.UNREACHABLE})
_ANSWERS = frozenset({Status.OK, Status.REFUSED, Status.NOT_FOUND})


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
        self._journal = journal
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
        steps = [self._step(i, box) for i, box in enumerate(snapshot.containers)]

        def write(db: sqlite3.Connection) -> int:
            decided, _ = record_decision(db, decision, mode=snapshot.mode.value, gates=explain(snapshot), repeat=False)
            journal_targets.touch(db, decision.at)
            return journal_attempts.open_attempt(
                db, self._target.name, at=decision.at, simulated=False, decision_id=decided, steps=steps
            )

        attempt = await self._journal.run(write)
        log.warning("intent to restart: %s", decision.text, extra={"target": self._target.name, "attempt": attempt})
        self._audit.write("intent", at=decision.at, target=self._target.name, attempt=attempt, text=decision.text)
        fault.point("after_intent")
        return attempt

    async def carry_out(self, attempt_id: int, snapshot: Snapshot, alert: Alert) -> None:
        """From the written intent to the end."""
        captured = await capture(self._config.diagnostics, self._runtime, snapshot)
        try:
            await self._journal.run(lambda db: journal_attempts.keep_diagnostics(db, attempt_id, captured))
        except StoreError as error:
            # The intent is on disk but the call's own mark would not be: without it no call is made.
            log.error("the restart is given up: %s", error)  # noqa: TRY400 - the sentence says it all
            await self._close(attempt_id, Closing(Result.WITHDRAWN, f"not made: {error}"))
            return
        fault.point("after_diagnostics")
        reports = await self._examiner.reports()
        _, again = await self._examiner.decide(self._target, alert, reports, ignoring=attempt_id)
        fault.point("after_recheck")
        if again.verb is not Verb.ACT:
            await self._store(lambda db: record(db, again, self._config.mode, "recheck"))
            await self._close(attempt_id, Closing(Result.WITHDRAWN, f"the last check said no: {again.text}"))
            return
        await self.proceed(attempt_id, fresh=True)

    async def proceed(self, attempt_id: int, *, fresh: bool = False) -> None:
        """Bring an attempt to its end, from whatever point it is at. `fresh`: no crash lies between."""
        attempt = await self._attempt(attempt_id)
        self.phase = attempt.phase.value
        if attempt.phase is Phase.INTENT and not fresh:
            text = "we ended between the intent and the call; nothing was touched, and it is not resumed"
            await self._close(attempt_id, Closing(Result.ABANDONED, text))
            return
        if attempt.phase in (Phase.INTENT, Phase.ACTING):
            for step in attempt.steps:
                closing = await self._bring_through(attempt_id, step)
                if closing is not None:
                    await self._close(attempt_id, closing)
                    return
            attempt = await self._attempt(attempt_id)
            acted_at = max((s.acted_at for s in attempt.steps if s.acted_at is not None), default=None)
            if acted_at is None:
                await self._close(attempt_id, Closing(Result.ABANDONED, "no container had to be restarted any more"))
                return
            await self._store(
                lambda db: journal_attempts.update_attempt(db, attempt_id, phase=Phase.VERIFYING, acted_at=acted_at)
            )
            fault.point("after_acted")
        await self._verify(attempt_id)

    # --- one container

    def _step(self, ordinal: int, box: Container) -> Step:
        # Never below the container's own grace: it is there because the engine needs it to drain.
        grace = max(self._target.rules.stop_timeout, float(box.stop_timeout or 0))
        if self._target.backend is Backend.COMMAND:
            named = {c.name: c.timeout for c in self._config.commands}
            grace = max(grace, *(named.get(s.command or "", 0.0) for s in self._target.selectors))
        return Step(ordinal, self._target.host, box.id, box.name, box.started_at, box.started_at_raw, grace)

    async def _bring_through(self, attempt_id: int, step: Step) -> Closing | None:
        """Restart one container, or find out what became of it. A closing ends the attempt; None goes on."""
        if step.acting_at is not None:
            return await self._reconcile(attempt_id, step, None)
        found = await self._runtime.inspect(step.container_id)
        standing = settle(step, found, self._outside.clock.wall(), answered=False)
        first = step.ordinal == 0
        if standing.found is Found.RESTARTED and not first:
            await self._acted(attempt_id, step, standing)
            return None
        if standing.found is not Found.UNTOUCHED:
            return await self._untouched_ending(attempt_id, standing.text)
        box = found.get()
        if not box.running or box.paused or box.restarting:
            if not first and await self._ended_by_us(attempt_id, box):
                return await self._start_member(attempt_id, step)
            return await self._untouched_ending(attempt_id, f"{box.name} became {box.state} before the call")
        try:
            step = await self._mark(attempt_id, step)
        except StoreError as error:
            return await self._untouched_ending(attempt_id, str(error))
        return await self._reconcile(attempt_id, step, await self._call(step))

    async def _ended_by_us(self, attempt_id: int, box: Container) -> bool:
        """A later member of a group that ended because its leader was restarted is ours to start."""
        begun = (await self._attempt(attempt_id)).acting_at
        return box.state == "exited" and None not in (begun, box.finished_at) and (box.finished_at or 0.0) >= (begun or 0.0)

    async def _start_member(self, attempt_id: int, step: Step) -> Closing | None:
        call = await self._start(attempt_id, step)
        found = await self._runtime.inspect(step.container_id)
        standing = settle(step, found, self._outside.clock.wall(), answered=True)
        if standing.found is Found.RESTARTED:
            await self._acted(attempt_id, step, standing)
            return None
        text = f"{step.name} ended with its leader and could not be started: {call.detail or standing.text}"
        return Closing(Result.START_FAILED, text, latch="start_failed")

    async def _untouched_ending(self, attempt_id: int, text: str) -> Closing:
        if (await self._attempt(attempt_id)).acting_at is not None:
            return Closing(Result.FAILED, f"only a part of the group was restarted: {text}", latch="group_half_restarted")
        return Closing(Result.WITHDRAWN, f"not touched: {text}")

    async def _mark(self, attempt_id: int, step: Step) -> Step:
        """On disk before the call: a call may have been made from now on."""
        now = self._outside.clock.wall()

        def write(db: sqlite3.Connection) -> None:
            journal_attempts.update_step(db, attempt_id, step.ordinal, acting_at=now)
            if journal_attempts.attempt_by_id(db, attempt_id).acting_at is None:
                journal_attempts.update_attempt(db, attempt_id, acting_at=now)
            journal_attempts.update_attempt(db, attempt_id, phase=Phase.ACTING)
            journal_targets.touch(db, now)

        await self._journal.run(write)
        self.phase = Phase.ACTING.value
        self._audit.write("acting", at=now, target=self._target.name, attempt=attempt_id, container=step.container_id)
        self._changed()
        fault.point("after_acting")
        return replace(step, acting_at=now)

    async def _call(self, step: Step) -> Outcome[None]:
        if fault.armed("during_call"):
            asyncio.get_running_loop().call_later(0.5, fault.point, "during_call")
        outcome = await self._runtime.restart(step.container_id, stop_timeout=step.stop_timeout)
        log.warning(
            "restart of %s: %s %s",
            step.name,
            outcome.status,
            outcome.detail,
            extra={"target": self._target.name, "seconds": round(outcome.seconds, 1)},
        )
        fault.point("after_call")
        return outcome

    async def _reconcile(self, attempt_id: int, step: Step, call: Outcome[None] | None) -> Closing | None:
        """`call`: the answer to our restart call, None after a crash."""
        answered = call is not None and call.status in _ANSWERS
        start_made = False
        while True:
            found = await self._runtime.inspect(step.container_id)
            standing = settle(step, found, self._outside.clock.wall(), answered=answered)
            if standing.found in _OPEN:
                await self._outside.clock.sleep(POLL)
                continue
            if standing.found is Found.RESTARTED:
                await self._acted(attempt_id, step, standing)
                return None
            if standing.found is Found.HALF and not start_made:
                start_made = answered = True
                call = await self._start(attempt_id, step)
                continue
            return _ending(step, standing, call)

    async def _start(self, attempt_id: int, step: Step) -> Outcome[None]:
        """The one `/start` that mends our own half restart."""
        now = self._outside.clock.wall()
        await self._store(lambda db: journal_attempts.update_step(db, attempt_id, step.ordinal, starting_at=now))
        fault.point("after_starting")
        outcome = await self._runtime.start(step.container_id)
        log.warning("start of %s: %s %s", step.name, outcome.status, outcome.detail, extra={"target": self._target.name})
        fault.point("after_start")
        return outcome

    async def _acted(self, attempt_id: int, step: Step, standing: Settled) -> None:
        at = standing.started_at if standing.started_at is not None else self._outside.clock.wall()

        def write(db: sqlite3.Connection) -> None:
            journal_attempts.update_step(db, attempt_id, step.ordinal, acted_at=at, detail=standing.text)

        await self._store(write)

    # --- after it

    async def _verify(self, attempt_id: int) -> None:
        attempt = await self._attempt(attempt_id)
        self.phase = Phase.VERIFYING.value
        await self._say(attempt, "acted", f"restarted {', '.join(s.name for s in attempt.steps)}")
        acting_at = attempt.acting_at if attempt.acting_at is not None else attempt.created_at
        acted_at = attempt.acted_at if attempt.acted_at is not None else acting_at
        while True:
            reported = await self._outside.exporter.target(self._target.name)
            boxes = [await self._runtime.inspect(s.container_id) for s in attempt.steps]
            verdict = verify(
                now=self._outside.clock.wall(),
                acting_at=acting_at,
                acted_at=acted_at,
                within=self._target.rules.verify_within,
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

        await self._store(write)
        self._changed()

    async def _close(self, attempt_id: int, closing: Closing) -> None:
        fault.point("before_close")
        rules, now = self._target.rules, self._outside.clock.wall()
        closed = await self._store(lambda db: close(db, attempt_id, closing, rules=rules, mode=self._config.mode, at=now))
        self._tally.closed(closed)
        self._audit.write(
            "closed", at=now, target=self._target.name, attempt=attempt_id, result=closed.result, text=closed.detail
        )
        log.warning("%s: %s", closing.result, closing.text, extra={"target": self._target.name, "attempt": attempt_id})
        fault.point("after_close")
        self._changed()

    async def _attempt(self, attempt_id: int) -> Attempt:
        return await self._store(lambda db: journal_attempts.attempt_by_id(db, attempt_id))

    async def _store(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Store what happened; it happened, so it is tried until the journal takes it."""
        while True:
            try:
                return await self._journal.run(work)
            except StoreError as error:
                log.error("not stored yet: %s", error, extra={"target": self._target.name})  # noqa: TRY400 - the sentence says it all
                await self._outside.clock.sleep(STORE_AGAIN)


def _ending(step: Step, standing: Settled, call: Outcome[None] | None) -> Closing:
    """How an attempt ends whose container was not started anew. `call`: the answer to the last call."""
    said = f"; Docker said: {call.detail}" if call is not None and call.detail else ""
    text = f"{standing.text}{said}"
    if standing.found is Found.HALF:
        return Closing(Result.START_FAILED, f"{text}; one start did not help", latch="start_failed")
    if standing.found is Found.STOPPED_BY_OTHER:
        return Closing(Result.STOPPED_BY_OTHER, text)
    if standing.found is not Found.UNCHANGED:
        return Closing(Result.RECREATED, text)
    if call is None:
        return Closing(Result.ABANDONED, f"we ended around the call, and it had no effect: {text}")
    if call.status is Status.UNAVAILABLE:
        return Closing(Result.ABANDONED, f"the call did not reach Docker: {text}")
    if call.status is Status.REFUSED and call.seconds < step.stop_timeout:
        return Closing(Result.FAILED, f"the restart was refused: {text}", latch="restart_refused")
    return Closing(Result.UNKILLABLE, f"the restart had no effect: {text}", latch="unkillable")


def _closing(verdict: Verification, result: Result) -> Closing:
    if result is Result.WRONG_CONTAINER:
        return Closing(result, verdict.text, latch="wrong_container")
    return Closing(result, verdict.text, latch="exited_after_restart" if verdict.gave_up else "")
