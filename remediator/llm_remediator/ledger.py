"""An attempt's access to the journal: what happened is stored until the journal takes it."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from llm_remediator import journal_attempts
from llm_remediator.history import Attempt
from llm_remediator.journal_thread import JournalThread
from llm_remediator.ports import Clock
from llm_remediator.service import StoreError

T = TypeVar("T")
AGAIN = 10.0
log = logging.getLogger("llm.remediator.remedy")


class Ledger:
    """The journal as an attempt uses it."""

    def __init__(self, journal: JournalThread, clock: Clock, target: str) -> None:
        self._journal = journal
        self._clock = clock
        self._target = target

    async def once(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Store before something is done: `StoreError` means that it must not be done."""
        return await self._journal.run(work)

    async def store(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Store what was done already."""
        while True:
            try:
                return await self._journal.run(work)
            except StoreError as error:
                log.error("not stored yet: %s", error, extra={"target": self._target})  # noqa: TRY400
                await self._clock.sleep(AGAIN)

    async def attempt(self, attempt_id: int) -> Attempt:
        """The attempt as it is on disk."""
        return await self.store(lambda db: journal_attempts.attempt_by_id(db, attempt_id))
