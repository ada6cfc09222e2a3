"""Gathers what the gates look at: cheap facts first, a costly one only when a gate asks for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from llm_remediator import journal_attempts, journal_targets
from llm_remediator.clockwatch import ClockWatch
from llm_remediator.config import Config
from llm_remediator.containers import ContainerRuntime
from llm_remediator.evidence import evidence
from llm_remediator.gathering import ask_witnesses, read_pause_file, resolve, sample_processes
from llm_remediator.history import History, Pause
from llm_remediator.journal_thread import JournalThread
from llm_remediator.outcome import Status
from llm_remediator.policy import decide
from llm_remediator.ports import AlertmanagerClient, Clock, Leader
from llm_remediator.remedy_command import Commands
from llm_remediator.rules import Backend, Mode, Target
from llm_remediator.service import StoreError
from llm_remediator.snapshot import Alert, Decision, Fact, FleetFacts, FleetMember, Member, ProofFacts, Snapshot
from llm_remediator.verdicts import ExporterClient, TargetReport


@dataclass(frozen=True, slots=True)
class Outside:
    """Everything beyond this process. Runtimes by back end and host."""

    runtimes: Mapping[tuple[Backend, str], ContainerRuntime]
    exporter: ExporterClient
    alertmanagers: tuple[AlertmanagerClient, ...]
    clock: Clock
    leader: Leader | None = None
    commands: Commands | None = None
    """Runs fixed commands, where the configuration has some."""

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
            wrong = found.status in (Status.REFUSED, Status.NOT_FOUND)
            says = "the exporter's address is of no use" if wrong else "the exporter does not answer"
            return Reports(fault=f"{says}: {found.detail or found.status}")
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
            runtime = self._outside.runtime(target)
            processes, fault = await sample_processes(runtime, self._outside.clock, snapshot.containers)
        elif fact is Fact.PROOF:
            before = tuple(m.container.incarnation for m in await self.members(target) if m.container is not None)
            proof = ProofFacts(await self._outside.exporter.proof(target.name), before)
            members = await self.members(target)
        else:
            witnesses = await ask_witnesses(self._outside.alertmanagers, target.name)
        reports = await self.reports()
        fresh = await self.assemble(target, snapshot.alert, reports, members, ignoring)
        return replace(fresh, processes=processes, processes_fault=fault, proof=proof, witnesses=witnesses)

    def _not_leading(self) -> str:
        leader = self._outside.leader
        return "" if leader is None or leader.leading else leader.words

    async def members(self, target: Target) -> tuple[Member, ...]:
        """Resolve every selector to exactly one container, by the configuration alone."""
        return await resolve(self._outside.runtime(target), target)

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
            not_leading=self._not_leading(),
            pauses=tuple(
                p for p in (*known.pauses, *read_pause_file(self._config.pause_file, now)) if p.target in (None, target.name)
            ),
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
            history = _without(history, ignoring)
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


def _without(history: History, attempt: int) -> History:
    """As it was before an attempt: the approval that it uses was not used."""
    asked = history.approval
    if asked is not None and asked.attempt == attempt:
        asked = replace(asked, attempt=None)
    return replace(history, attempts=tuple(a for a in history.attempts if a.id != attempt), approval=asked)


def fleet_members(config: Config, reports: Reports, in_flight: frozenset[str]) -> tuple[FleetMember, ...]:
    """All configured targets as the breaker sees them; without a verdict a target is `unknown`."""
    members = []
    for target in config.targets:
        report = reports.by_name.get(target.name)
        state, since = (report.state, report.since) if report is not None else ("unknown", None)
        members.append(FleetMember(target.name, state, since, target.name in in_flight))
    return tuple(members)
