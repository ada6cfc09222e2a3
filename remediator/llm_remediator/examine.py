"""Gathers what the gates look at: cheap facts first, a costly one only when a gate asks for it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from llm_common.config import parse_duration
from llm_remediator import journal_attempts, journal_targets
from llm_remediator.clockwatch import ClockWatch
from llm_remediator.config import Config
from llm_remediator.journal_thread import JournalThread
from llm_remediator.model import (
    Alert,
    Backend,
    Decision,
    Fact,
    FleetFacts,
    FleetMember,
    History,
    Member,
    Mode,
    Pause,
    ProofFacts,
    Snapshot,
    Target,
    Witness,
)
from llm_remediator.policy import decide
from llm_remediator.policy.proof import SAMPLES
from llm_remediator.ports import (
    ActiveAlert,
    AlertmanagerClient,
    Clock,
    ContainerRuntime,
    ExporterClient,
    Outcome,
    Process,
    Status,
    TargetReport,
    the_one,
)
from llm_remediator.service import StoreError

SAMPLE_PAUSE = 5.0
PAUSE_FILE_LASTS = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Outside:
    """Everything beyond this process. Runtimes by back end and host."""

    runtimes: Mapping[tuple[Backend, str], ContainerRuntime]
    exporter: ExporterClient
    alertmanagers: tuple[AlertmanagerClient, ...]
    clock: Clock

    def runtime(self, target: Target) -> ContainerRuntime:
        """The runtime that carries out a target's restarts."""
        return self.runtimes[target.backend, target.host]


@dataclass(frozen=True, slots=True)
class Reports:
    """The exporter's verdicts on all targets at one moment."""

    by_name: Mapping[str, TargetReport] = field(default_factory=dict)
    fault: str = "not asked yet"


@dataclass(frozen=True, slots=True)
class Remembered:
    """One consistent read of the journal."""

    history: History
    pauses: tuple[Pause, ...]
    newest_seen: float
    breaker_last_open: float | None
    acts: tuple[float, ...]
    open_targets: frozenset[str]


class Examiner:
    """Makes snapshots and decisions; touches nothing."""

    def __init__(self, config: Config, outside: Outside, journal: JournalThread) -> None:
        self._config = config
        self._outside = outside
        self._journal = journal
        self._clock_watch = ClockWatch()

    @property
    def mode(self) -> Mode:
        """The configured mode. A broken journal refuses in a gate of its own."""
        return self._config.mode

    async def reports(self) -> Reports:
        """Ask the exporter for everything it watches."""
        found = await self._outside.exporter.targets()
        if not found.ok:
            return Reports(fault=f"the exporter does not answer: {found.detail or found.status}")
        return Reports({r.name: r for r in found.get()}, "")

    async def snapshot(
        self, target: Target, alert: Alert | None, reports: Reports, *, ignoring: int | None = None
    ) -> Snapshot:
        """All cheap facts. `ignoring`: the attempt on whose behalf we look."""
        members = await self.members(target)
        return await self.assemble(target, alert, reports, members, ignoring)

    async def decide(
        self, target: Target, alert: Alert | None, reports: Reports, *, ignoring: int | None = None
    ) -> tuple[Snapshot, Decision]:
        """Look until the gates can say something; the decision rests on one last, complete snapshot."""
        snapshot = await self.snapshot(target, alert, reports, ignoring=ignoring)
        while True:
            decided = decide(snapshot)
            if isinstance(decided, Decision):
                return snapshot, replace(decided, evidence=evidence(snapshot))
            snapshot = await self.gather(decided, snapshot, ignoring=ignoring)

    async def gather(self, fact: Fact, snapshot: Snapshot, *, ignoring: int | None = None) -> Snapshot:
        """A new snapshot with the fact in it, and with the cheap facts read again after it."""
        target = snapshot.target
        processes, fault = snapshot.processes, snapshot.processes_fault
        proof, witnesses = snapshot.proof, snapshot.witnesses
        members = snapshot.members
        if fact is Fact.PROCESSES:
            processes, fault = await self._processes(snapshot)
        elif fact is Fact.PROOF:
            before = tuple(c.incarnation for c in (await self._again(snapshot)))
            proof = ProofFacts(await self._outside.exporter.proof(target.name), before)
            members = await self.members(target)
        else:
            witnesses = await self.witnesses(target)
        reports = await self.reports()
        fresh = await self.assemble(target, snapshot.alert, reports, members, ignoring)
        return replace(fresh, processes=processes, processes_fault=fault, proof=proof, witnesses=witnesses)

    async def members(self, target: Target) -> tuple[Member, ...]:
        """Resolve every selector to exactly one container, by the configuration alone."""
        runtime = self._outside.runtime(target)
        members = []
        for selector in target.selectors:
            found = await runtime.find(selector)
            if not found.ok:
                members.append(Member(selector, None, f"{runtime.host}: {found.detail or found.status}", "unreachable"))
                continue
            matches = found.get()
            match, why = the_one(matches, selector)
            if match is None:
                members.append(Member(selector, None, why, "ambiguous" if matches else "no_match"))
                continue
            box = await runtime.inspect(match.id)
            gone = "no_match" if box.status is Status.NOT_FOUND else "unreachable"
            fault = "" if box.ok else f"{match.name}: {box.detail or box.status}"
            members.append(Member(selector, box.value if box.ok else None, fault, "" if box.ok else gone))
        return tuple(members)

    async def witnesses(self, target: Target) -> tuple[Witness, ...]:
        """What every Alertmanager says about the target now."""
        answers = await asyncio.gather(*(am.alerts() for am in self._outside.alertmanagers))
        return tuple(
            witness(target.name, am.url, answer) for am, answer in zip(self._outside.alertmanagers, answers, strict=True)
        )

    async def _again(self, snapshot: Snapshot) -> list[Any]:
        return [m.container for m in await self.members(snapshot.target) if m.container is not None]

    async def _processes(self, snapshot: Snapshot) -> tuple[tuple[tuple[Process, ...], ...], str]:
        runtime = self._outside.runtime(snapshot.target)
        samples: list[tuple[Process, ...]] = []
        while len(samples) < SAMPLES:
            if samples:
                await self._outside.clock.sleep(SAMPLE_PAUSE)
            sample: list[Process] = []
            for box in snapshot.containers:
                listed = await runtime.top(box.id)
                if not listed.ok:
                    return tuple(samples), listed.detail or str(listed.status)
                sample.extend(listed.get())
            samples.append(tuple(sample))
            if not any(p.stat[:1] in ("D", "Z") for p in sample):
                break
        return tuple(samples), ""

    async def assemble(
        self,
        target: Target,
        alert: Alert | None,
        reports: Reports,
        members: tuple[Member, ...],
        ignoring: int | None = None,
    ) -> Snapshot:
        """A snapshot around members that were resolved already."""
        try:
            known, fault = await self._journal.run(lambda db: self._recall(db, target, ignoring)), ""
        except StoreError as error:
            known, fault = Remembered(History(), (), 0.0, None, (), frozenset()), str(error)
        # Read after the journal: what another task stored meanwhile must not look like the future.
        now = self._outside.clock.wall()
        report = reports.by_name.get(target.name)
        report_fault = reports.fault or f"the exporter does not know a target named {target.name}"
        return Snapshot(
            now=now,
            mode=self.mode,
            target=target,
            newest_seen=known.newest_seen,
            clock_jump_until=self._clock_watch.distrust_until(now, self._outside.clock.monotonic()),
            journal_fault=fault,
            pauses=tuple(p for p in (*known.pauses, *self._pause_file(now)) if p.target in (None, target.name)),
            alert=alert,
            alert_ttl=self._config.alert_ttl,
            report=report,
            report_fault="" if report is not None else report_fault,
            report_unknown=report is None and not reports.fault,
            members=members,
            history=known.history,
            fleet=FleetFacts(
                members=fleet_members(self._config, reports, known.open_targets),
                acts=known.acts,
                breaker_last_open=known.breaker_last_open,
            ),
            fleet_rules=self._config.fleet,
            alertmanagers_configured=len(self._outside.alertmanagers),
        )

    def _recall(self, db: sqlite3.Connection, target: Target, ignoring: int | None) -> Remembered:
        observing = self.mode is Mode.OBSERVE
        now = self._outside.clock.wall()
        history = journal_targets.history(db, target.name, simulated=observing)
        if ignoring is not None:
            history = replace(history, attempts=tuple(a for a in history.attempts if a.id != ignoring))
        return Remembered(
            history=history,
            pauses=journal_targets.pauses(db, at=now),
            newest_seen=journal_targets.remembered(db, "newest_seen") or 0.0,
            breaker_last_open=journal_targets.remembered(db, "breaker_last_open"),
            acts=journal_attempts.act_times(
                db, since=now - self._config.fleet.budget.per, simulated=observing, ignoring=ignoring
            ),
            open_targets=frozenset(a.target for a in journal_attempts.unfinished(db) if a.id != ignoring),
        )

    def _pause_file(self, now: float) -> tuple[Pause, ...]:
        """A file whose being there pauses everything: for its first line's duration (default 4h) from its mtime."""
        if self._config.pause_file is None:
            return ()
        path = Path(self._config.pause_file)
        try:
            changed = path.stat().st_mtime
            first = (path.read_text(encoding="utf-8", errors="replace").splitlines() or [""])[0].strip()
        except FileNotFoundError:
            return ()
        except OSError as error:
            return (Pause(None, now + 60.0, f"{path} cannot be read: {error.strerror}", "pause file"),)
        try:
            lasts = parse_duration(first) if first else PAUSE_FILE_LASTS
        except ValueError:
            lasts = PAUSE_FILE_LASTS
        return (Pause(None, changed + lasts, f"{path} is there", "pause file"),)


def fleet_members(config: Config, reports: Reports, in_flight: frozenset[str]) -> tuple[FleetMember, ...]:
    """All configured targets as the breaker sees them; without a verdict a target is `unknown`."""
    members = []
    for target in config.targets:
        report = reports.by_name.get(target.name)
        state, since = (report.state, report.since) if report is not None else ("unknown", None)
        members.append(FleetMember(target.name, state, since, target.name in in_flight))
    return tuple(members)


def witness(target: str, url: str, answer: Outcome[tuple[ActiveAlert, ...]]) -> Witness:
    """One Alertmanager's word on one target."""
    if not answer.ok:
        return Witness(url, reachable=False, detail=answer.detail or str(answer.status))
    alerts = [a for a in answer.get() if a.target == target]
    suppressed = [s for a in alerts for s in (*a.silenced_by, *a.inhibited_by)]
    suppressed += [f"state {a.state}" for a in alerts if a.state == "suppressed" and not suppressed]
    return Witness(url, True, firing=sum(a.firing for a in alerts), suppressed_by=tuple(dict.fromkeys(suppressed)))


def evidence(snapshot: Snapshot) -> dict[str, Any]:
    """The values a decision rested on, for the audit."""
    found: dict[str, Any] = {"mode": snapshot.mode.value}
    if snapshot.report is not None:
        found |= {"state": snapshot.report.state, "sentence": snapshot.report.sentence, "held": snapshot.report.held}
    if snapshot.members:
        found["containers"] = [
            {"id": c.id, "name": c.name, "state": c.state, "started_at": c.started_at} for c in snapshot.containers
        ]
    if snapshot.alert is not None:
        found["alert"] = {
            "name": snapshot.alert.name,
            "source": snapshot.alert.source,
            "fingerprint": snapshot.alert.fingerprint,
            "seen_at": snapshot.alert.seen_at,
        }
    if snapshot.proof is not None and snapshot.proof.outcome.ok:
        proof = snapshot.proof.outcome.get()
        found["proof"] = {
            "state": proof.state,
            "sentence": proof.sentence,
            "lane": proof.lane,
            "held": proof.held,
            "flat_since": proof.flat_since,
            "observed_at": proof.observed_at,
            "bound_seconds": proof.bound_seconds,
            "hardware": proof.hardware,
            "evidence": [dict(e) for e in proof.evidence][:50],
        }
    if snapshot.witnesses is not None:
        found["alertmanagers"] = {w.url: "firing" if w.firing else w.detail or "not firing" for w in snapshot.witnesses}
    return found
