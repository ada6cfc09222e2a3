"""One container of an attempt: the mark on disk, the one call, and what became of it.

The restart call is made once, whatever its answer; after a crash the container itself tells what happened.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from llm_remediator import fault, journal_attempts, journal_targets
from llm_remediator.closing import Closing
from llm_remediator.containers import Container
from llm_remediator.history import Phase, Result, Step
from llm_remediator.ledger import Ledger
from llm_remediator.outcome import Outcome, Status
from llm_remediator.ports import Clock
from llm_remediator.reconcile import Found, Settled, settle
from llm_remediator.service import StoreError

log = logging.getLogger("llm.remediator.remedy")
POLL = 2.0
_OPEN = frozenset({Found.WAIT, Found.UNREACHABLE})
_ANSWERS = frozenset({Status.OK, Status.REFUSED, Status.NOT_FOUND})


class Doctor(Protocol):
    """What a restart needs of a back end."""

    async def inspect(self, container_id: str) -> Outcome[Container]:
        """The container as it stands."""
        ...

    async def restart(self, container_id: str, *, stop_timeout: float) -> Outcome[None]:
        """The one call."""
        ...

    async def start(self, container_id: str) -> Outcome[None]:
        """The one `/start` that mends a half restart."""
        ...


class Restarting:
    """Brings the steps of an attempt through. `acting` is told of each mark, before its call."""

    def __init__(
        self,
        target: str,
        runtime: Doctor,
        clock: Clock,
        ledger: Ledger,
        acting: Callable[[Step, float], None],
    ) -> None:
        self._target = target
        self._runtime = runtime
        self._clock = clock
        self._ledger = ledger
        self._acting = acting

    async def bring_through(self, attempt_id: int, step: Step) -> Closing | None:
        """Restart one container, or find out what became of it. A closing ends the attempt; None goes on."""
        if step.acting_at is not None:
            return await self._reconcile(attempt_id, step, None)
        first = step.ordinal == 0
        found = await self._runtime.inspect(step.container_id)
        standing = settle(step, found, self._clock.wall(), answered=False)
        while standing.found is Found.UNREACHABLE and not first:
            # A group that we began is not left half done because its host is away for a while.
            await self._clock.sleep(POLL)
            found = await self._runtime.inspect(step.container_id)
            standing = settle(step, found, self._clock.wall(), answered=False)
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
        begun = (await self._ledger.attempt(attempt_id)).acting_at
        return box.state == "exited" and None not in (begun, box.finished_at) and (box.finished_at or 0.0) >= (begun or 0.0)

    async def _start_member(self, attempt_id: int, step: Step) -> Closing | None:
        call = await self._start(attempt_id, step)
        found = await self._runtime.inspect(step.container_id)
        standing = settle(step, found, self._clock.wall(), answered=True)
        if standing.found is Found.RESTARTED:
            await self._acted(attempt_id, step, standing)
            return None
        text = f"{step.name} ended with its leader and could not be started: {call.detail or standing.text}"
        return Closing(Result.START_FAILED, text, latch="start_failed")

    async def _untouched_ending(self, attempt_id: int, text: str, *, begun: Closing | None = None) -> Closing:
        """This step changed nothing: `begun`, or withdrawn, unless another container was restarted before it."""
        steps = (await self._ledger.attempt(attempt_id)).steps
        if any(step.acted_at is not None for step in steps):
            return Closing(Result.FAILED, f"only a part of the group was restarted: {text}", latch="group_half_restarted")
        return begun or Closing(Result.WITHDRAWN, f"not touched: {text}")

    async def _mark(self, attempt_id: int, step: Step) -> Step:
        """On disk before the call: a call may have been made from now on."""
        now = self._clock.wall()

        def write(db: sqlite3.Connection) -> None:
            journal_attempts.update_step(db, attempt_id, step.ordinal, acting_at=now)
            if journal_attempts.attempt_by_id(db, attempt_id).acting_at is None:
                journal_attempts.update_attempt(db, attempt_id, acting_at=now)
            journal_attempts.update_attempt(db, attempt_id, phase=Phase.ACTING)
            journal_targets.touch(db, now)

        await self._ledger.once(write)
        self._acting(step, now)
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
            extra={"target": self._target, "seconds": round(outcome.seconds, 1)},
        )
        fault.point("after_call")
        return outcome

    async def _reconcile(self, attempt_id: int, step: Step, call: Outcome[None] | None) -> Closing | None:
        """`call`: the answer to our restart call, None after a crash."""
        answered = call is not None and call.status in _ANSWERS
        start_made = False
        while True:
            found = await self._runtime.inspect(step.container_id)
            standing = settle(step, found, self._clock.wall(), answered=answered)
            if standing.found in _OPEN:
                await self._clock.sleep(POLL)
                continue
            if standing.found is Found.RESTARTED:
                await self._acted(attempt_id, step, standing)
                return None
            if standing.found is Found.HALF and not start_made:
                start_made = answered = True
                call = await self._start(attempt_id, step)
                continue
            ending = _ending(step, standing, call)
            if ending.result is Result.ABANDONED:
                return await self._untouched_ending(attempt_id, ending.text, begun=ending)
            return ending

    async def _start(self, attempt_id: int, step: Step) -> Outcome[None]:
        """The one `/start` that mends our own half restart."""
        now = self._clock.wall()
        await self._ledger.store(lambda db: journal_attempts.update_step(db, attempt_id, step.ordinal, starting_at=now))
        fault.point("after_starting")
        outcome = await self._runtime.start(step.container_id)
        log.warning("start of %s: %s %s", step.name, outcome.status, outcome.detail, extra={"target": self._target})
        fault.point("after_start")
        return outcome

    async def _acted(self, attempt_id: int, step: Step, standing: Settled) -> None:
        at = standing.started_at if standing.started_at is not None else self._clock.wall()

        def write(db: sqlite3.Connection) -> None:
            journal_attempts.update_step(db, attempt_id, step.ordinal, acted_at=at, detail=standing.text)

        await self._ledger.store(write)


def _ending(step: Step, standing: Settled, call: Outcome[None] | None) -> Closing:
    """How an attempt ends whose container was not started anew. `call`: the answer to the last call."""
    said = f"; the answer was: {call.detail}" if call is not None and call.detail else ""
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
