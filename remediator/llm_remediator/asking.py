"""Which targets are asked to be restarted: the level, read again and again, not the edge of one delivery."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from llm_remediator import journal_audit
from llm_remediator.config import Config
from llm_remediator.examine import Outside, Reports
from llm_remediator.journal_thread import JournalThread
from llm_remediator.outcome import Outcome
from llm_remediator.ports import ActiveAlert
from llm_remediator.service import StoreError
from llm_remediator.snapshot import Alert


class Asking:
    """Reads the alerts in force from all Alertmanagers, the journal's webhooks, or the exporter's states."""

    def __init__(self, config: Config, outside: Outside, journal: JournalThread) -> None:
        self._config = config
        self._outside = outside
        self._journal = journal
        self.alertmanager_up: dict[str, bool] = {am.url: False for am in outside.alertmanagers}

    async def read(self, reports: Reports) -> dict[str, Alert]:
        """For each target the alert that speaks for it; resolved ones too while they are news."""
        now = self._outside.clock.wall()
        if self._config.trigger == "exporter":
            return dict(_from_states(self._config, reports, now))
        known = frozenset(t.name for t in self._config.targets)
        answers: Sequence[Outcome[tuple[ActiveAlert, ...]]] = await asyncio.gather(
            *(am.alerts() for am in self._outside.alertmanagers)
        )
        for am, answer in zip(self._outside.alertmanagers, answers, strict=True):
            self.alertmanager_up[am.url] = answer.ok
        held = [a for answer in answers if answer.ok for a in answer.get() if a.target in known]
        whole = bool(answers) and all(answer.ok for answer in answers)
        level = tuple(_merged(held, now).values())
        try:
            stored = await self._journal.run(lambda db: _store(db, level, whole, now))
        except StoreError:
            stored = {}
        recent = {name: a for name, a in stored.items() if now - a.seen_at <= 2 * self._config.alert_ttl}
        # The journal does not keep who suppressed an alert; what Alertmanager said just now wins.
        return {**recent, **{a.target: a for a in level}}


def _store(db: journal_audit.Db, level: Sequence[Alert], whole: bool, now: float) -> dict[str, Alert]:
    if whole:
        journal_audit.level(db, level, at=now)
    else:
        for alert in level:
            journal_audit.store_alert(db, alert)
    return journal_audit.alerts(db)


def _merged(held: Iterable[ActiveAlert], now: float) -> dict[str, Alert]:
    merged: dict[str, Alert] = {}
    for found in held:
        suppressed = (*found.silenced_by, *found.inhibited_by)
        alert = Alert(
            target=found.target,
            name=found.labels.get("alertname", ""),
            firing=True,
            seen_at=now,
            source="alertmanager",
            fingerprint=found.fingerprint,
            starts_at=found.starts_at,
            suppressed_by=suppressed,
        )
        before = merged.get(found.target)
        if before is not None:
            # A silence at one of several speaks for all: it may not have reached the others yet.
            alert = replace(alert, suppressed_by=tuple(dict.fromkeys((*before.suppressed_by, *suppressed))))
        merged[found.target] = alert
    return merged


def _from_states(config: Config, reports: Reports, now: float) -> Mapping[str, Alert]:
    wanted = {}
    for target in config.targets:
        report = reports.by_name.get(target.name)
        if report is not None and report.state in target.rules.restart_on:
            wanted[target.name] = Alert(target.name, report.state, True, now, "exporter", starts_at=report.since)
    return wanted
