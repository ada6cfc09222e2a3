"""Carries stored notices to people: at least once, in order, never waited for by an action."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from llm_remediator import journal_audit
from llm_remediator.journal_thread import JournalThread
from llm_remediator.ports import Clock, Notice, Notifier
from llm_remediator.service import StoreError

AGAIN = 15.0
"""Seconds before the second try; each pause is twice the one before, up to"""
SELDOM = 300.0
log = logging.getLogger("llm.remediator.courier")


class Courier:
    """Sends what the journal holds undelivered; `failures` counts tries that one endpoint did not take."""

    def __init__(self, journal: JournalThread, notifiers: Sequence[Notifier], clock: Clock) -> None:
        self.failures = 0
        self._journal = journal
        self._notifiers = tuple(notifiers)
        self._clock = clock
        self._wake = asyncio.Event()
        self._delivered: dict[int, set[int]] = {}

    def wake(self) -> None:
        """There may be something to send."""
        self._wake.set()

    async def run(self) -> None:
        """The eternal task."""
        pause = AGAIN
        while True:
            if await self.deliver():
                await self._clock.sleep(pause)
                pause = min(2 * pause, SELDOM)
                continue
            pause = AGAIN
            await self._wake.wait()
            self._wake.clear()

    async def deliver(self) -> bool:
        """One round; True if something is left to try again."""
        try:
            pending = await self._journal.run(journal_audit.pending_notices)
            left = False
            for number, notice in pending:
                left |= not await self._send(number, notice)
        except StoreError:
            return True  # the journal's fault is told by its own metric and gate
        return left

    async def _send(self, number: int, notice: Notice) -> bool:
        reached = self._delivered.setdefault(number, set())
        for index, notifier in enumerate(self._notifiers):
            if index in reached:
                continue
            outcome = await notifier.notify(notice)
            if outcome.ok:
                reached.add(index)
            else:
                self.failures += 1
                log.error("a notice was not delivered: %s", outcome.detail, extra={"target": notice.target})
        everywhere = len(reached) == len(self._notifiers)
        now = self._clock.wall()
        gone = await self._journal.run(lambda db: journal_audit.notice_tried(db, number, at=now, delivered=everywhere))
        if everywhere or gone:
            del self._delivered[number]
        return everywhere or gone
