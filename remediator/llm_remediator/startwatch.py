"""Watches who starts the containers of our targets, for the budget and to find a second watchdog."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from llm_remediator import journal_attempts, journal_targets
from llm_remediator.containers import Container
from llm_remediator.examine import Outside, Reports
from llm_remediator.history import Attempt, ForeignStart
from llm_remediator.journal_thread import JournalThread
from llm_remediator.rules import Target
from llm_remediator.service import StoreError
from llm_remediator.starts import is_ours, starts_from_events

_STATES_KEPT = 100


class StartWatch:
    """Remembers the exporter's states, and journals each new start with its cause."""

    def __init__(self, outside: Outside, journal: JournalThread) -> None:
        self._outside = outside
        self._journal = journal
        self._states: dict[str, deque[tuple[float, str]]] = {}

    def see(self, reports: Reports) -> None:
        """Note since when each target is in which state."""
        for report in reports.by_name.values():
            states = self._states.setdefault(report.name, deque(maxlen=_STATES_KEPT))
            since = report.since if report.since is not None else self._outside.clock.wall()
            if not states or states[-1][1] != report.state:
                states.append((since, report.state))

    async def note(self, target: Target, boxes: Sequence[Container]) -> None:
        """Journal the starts that are new. With a journal that fails nothing is noted, and nothing guessed."""
        with contextlib.suppress(StoreError):  # the journal gate tells; the start is seen again at the next look
            for box in boxes:
                if box.started_at is not None:
                    await self._note(target, box, box.started_at)

    async def _note(self, target: Target, box: Container, started_at: float) -> None:
        def recall(db: sqlite3.Connection) -> tuple[float | None, tuple[Attempt, ...]]:
            known = journal_targets.last_start(db, target.name, box.id)
            if known is not None and started_at <= known:
                return known, ()
            return known, journal_attempts.attempts(db, target=target.name, simulated=False)

        known, attempts = await self._journal.run(recall)
        if known is not None and started_at <= known:
            return
        starts = await self._whose(target, box, started_at, known, attempts)
        now = self._outside.clock.wall()

        def write(db: sqlite3.Connection) -> None:
            for start in starts:
                journal_targets.seen_start(db, target.name, start, at=now)

        await self._journal.run(write)

    async def _whose(
        self, target: Target, box: Container, started_at: float, known: float | None, attempts: Sequence[Attempt]
    ) -> tuple[ForeignStart, ...]:
        if is_ours(attempts, box.id, started_at) and known is None:
            return (ForeignStart(box.id, started_at, "ours"),)
        if known is None:
            return (ForeignStart(box.id, started_at, "policy" if box.restart_count else "deployment"),)
        events = await self._outside.runtime(target).events(box.id, since=known, until=started_at + 5.0)
        # The exporter remembers states that were over before we looked; ours outlive its restart.
        reported = await self._outside.exporter.target(target.name)
        told = reported.get().history if reported.ok else ()
        states = sorted({*self._states.get(target.name, ()), *told})
        found = starts_from_events(box.id, events.value or (), known=known, newest=started_at, states=states)
        # Ours may lie between: somebody restarted it again while we still watched our own restart.
        return tuple(replace(s, cause="ours") if is_ours(attempts, box.id, s.started_at) else s for s in found)
