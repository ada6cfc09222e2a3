"""A world in memory behind the ports: a clock, a Docker host, an exporter, an Alertmanager. The journal is real.

The exporter tells what is true of each engine here, so that a test can ask of every restart whether it was right.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from llm_remediator.config import Config, Diagnostics, Endpoint
from llm_remediator.containers import Container, Event, Match, Process, RuntimeHealth, RuntimeInfo, Selector
from llm_remediator.examine import Outside
from llm_remediator.journal_thread import JournalThread
from llm_remediator.outcome import Outcome, Status, failed
from llm_remediator.ports import ActiveAlert, Notice
from llm_remediator.remediator import Remediator
from llm_remediator.rules import Backend, Budget, FleetRules, Mode, Rules, Target
from llm_remediator.verdicts import Proof, TargetReport

START = 1_800_000_000.0
OK: Outcome[None] = Outcome(Status.OK)


class Clock:
    """Sleeping passes the time for everybody."""

    def __init__(self) -> None:
        self.now = START
        self.mono = 1000.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.mono

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.mono += seconds

    def jump(self, seconds: float) -> None:
        """Somebody sets the clock."""
        self.now += seconds

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)


@dataclass
class Engine:
    """One engine, its container, and what is true of it."""

    name: str
    id: str
    box: Container
    sick_since: float | None = None
    cured_by_restart: bool = True
    cured_by_recreate: bool = True
    traffic: bool = True
    canary: bool = True
    loads_for: float = 5.0
    relapses_after: float = 700.0
    """When it hangs again after a start that did not cure it."""
    events: list[Event] = field(default_factory=list)
    script: deque[str] = field(default_factory=deque)
    """How the next restarts go: ok (default), late, half, half_forever, no_effect, refused, unavailable, other."""
    pending: tuple[float, Container] | None = None
    startable: bool = True
    exporter_sees: bool = True
    """False: the target's url leads somewhere else."""

    def settle(self, now: float) -> None:
        if self.pending is not None and now >= self.pending[0]:
            self.started(self.pending[1].started_at or now)
            self.pending = None

    def started(self, at: float) -> None:
        """A start, whoever made it."""
        self.box = replace(
            self.box, state="running", running=True, started_at=at, started_at_raw=repr(at), error="", finished_at=None
        )
        self.events.append(Event(at, "start"))
        if self.sick_since is not None and self.exporter_sees:
            self.sick_since = None if self.cured_by_restart else at + self.relapses_after

    def stopped(self, at: float, error: str = "") -> None:
        self.box = replace(self.box, state="exited", running=False, finished_at=at, exit_code=137, error=error)

    def stop_events(self, at: float) -> None:
        self.events += [Event(at, "kill", signal="15"), Event(at, "die"), Event(at, "stop")]


class Docker:
    """`ContainerRuntime` for all engines. `before_restart` is asked before each restart call."""

    host = "local"
    health = RuntimeHealth(up=True)

    def __init__(self, clock: Clock, engines: dict[str, Engine]) -> None:
        self.clock = clock
        self.engines = engines
        self.reachable = True
        self.restarts: list[tuple[float, str]] = []
        self.starts: list[tuple[float, str]] = []
        self.before_restart: Callable[[Engine], None] = lambda _: None
        self.processes: tuple[Process, ...] = (Process(100, 1, "Ssl", "", 1.0, "python"),)

    def _by_id(self, container_id: str) -> Engine | None:
        engine = next((e for e in self.engines.values() if e.id == container_id), None)
        if engine is not None:
            engine.settle(self.clock.now)
        return engine

    async def ping(self) -> Outcome[RuntimeInfo]:
        return Outcome(Status.OK, RuntimeInfo("20.10", "1.41"))

    async def find(self, selector: Selector) -> Outcome[tuple[Match, ...]]:
        if not self.reachable:
            return failed(Status.UNAVAILABLE, "daemon down")
        found = [e for e in self.engines.values() if e.box.name == selector.container and e.id]
        return Outcome(Status.OK, tuple(Match(e.id, e.box.name, e.box.state) for e in found))

    async def inspect(self, container_id: str) -> Outcome[Container]:
        if not self.reachable:
            return failed(Status.UNAVAILABLE, "daemon down")
        engine = self._by_id(container_id)
        return Outcome(Status.OK, engine.box) if engine is not None else failed(Status.NOT_FOUND, "no such container")

    async def restart(self, container_id: str, *, stop_timeout: float) -> Outcome[None]:
        engine = self._by_id(container_id)
        assert engine is not None
        assert engine.box.running
        self.before_restart(engine)
        self.restarts.append((self.clock.now, engine.name))
        how = engine.script.popleft() if engine.script else "ok"
        now = self.clock.now
        if how in ("ok", "late"):
            engine.stop_events(now)
            if how == "late":
                engine.pending = (now + 8, replace(engine.box, started_at=now + 8))
                return failed(Status.TIMED_OUT, "no answer", 5.0)
            self.clock.advance(1.5)
            engine.started(self.clock.now)
            return OK
        if how.startswith("half"):
            engine.stop_events(now)
            engine.stopped(now + 1, "no such device")
            engine.startable = how == "half"
            self.clock.advance(1.5)
            return failed(Status.REFUSED, "500 no such device", 1.5)
        if how == "no_effect":
            self.clock.advance(stop_timeout + 14)
            return failed(Status.REFUSED, "500 did not receive an exit event", stop_timeout + 14)
        status = Status.UNAVAILABLE if how == "unavailable" else Status.REFUSED
        return failed(status, how, 0.1)

    async def start(self, container_id: str) -> Outcome[None]:
        engine = self._by_id(container_id)
        assert engine is not None
        self.starts.append((self.clock.now, engine.name))
        if not engine.startable:
            return failed(Status.REFUSED, "500 no such device", 0.1)
        if not engine.box.running:
            engine.started(self.clock.now)
        return OK

    async def top(self, container_id: str) -> Outcome[tuple[Process, ...]]:
        return Outcome(Status.OK, self.processes)

    async def logs(self, container_id: str, *, lines: int, max_bytes: int) -> Outcome[str]:
        return Outcome(Status.OK, "a log line\n")

    async def events(self, container_id: str, *, since: float, until: float) -> Outcome[tuple[Event, ...]]:
        engine = self._by_id(container_id)
        assert engine is not None
        return Outcome(Status.OK, tuple(e for e in engine.events if since <= e.at <= until))

    async def watchdogs(self) -> Outcome[tuple[str, ...]]:
        return Outcome(Status.OK, ())

    async def close(self) -> None:
        return None


class Commands:
    """Fixed commands. How the next ones go: recreate (default), restart, nothing, refused, gone."""

    def __init__(self, clock: Clock, docker: Docker) -> None:
        self.clock = clock
        self.docker = docker
        self.ran: list[tuple[float, str, str]] = []
        self.script: deque[str] = deque()
        self.warnings: tuple[str, ...] = ()
        self.before_command: Callable[[Engine], None] = lambda _: None

    async def carry_out(self, name: str, container_id: str) -> Outcome[None]:
        engine = self.docker._by_id(container_id)
        assert engine is not None
        assert engine.box.running
        self.before_command(engine)
        self.ran.append((self.clock.now, name, engine.name))
        how = self.script.popleft() if self.script else "recreate"
        if how == "nothing":
            return OK
        if how == "refused":
            return failed(Status.REFUSED, f"{name} ended with 1", 0.1)
        engine.stop_events(self.clock.now)
        self.clock.advance(1.5)
        if how == "gone":
            engine.id = ""
            return failed(Status.REFUSED, f"{name} ended with 1", 1.5)
        if how == "recreate":
            engine.id = f"{len(self.ran):02x}" + engine.id[2:]
            engine.box = replace(engine.box, id=engine.id)
            engine.events.clear()
            engine.cured_by_restart |= engine.cured_by_recreate
        engine.started(self.clock.now)
        return OK


class Exporter:
    """`ExporterClient` that tells the truth, when it answers."""

    def __init__(self, clock: Clock, engines: dict[str, Engine]) -> None:
        self.clock = clock
        self.engines = engines
        self.reachable = True
        self.proofs: dict[str, tuple[float, str, str]] = {}
        """Last proof of each target: (when, state, incarnation that was proven)."""
        self.during_proof: Callable[[Engine], None] = lambda _: None
        self.hardware: str | None = None

    def report(self, engine: Engine) -> TargetReport:
        now = self.clock.now
        engine.settle(now)
        started = engine.box.started_at or now
        seen = engine.exporter_sees
        up = engine.box.running and (now - started >= engine.loads_for or not seen)
        sick = engine.sick_since is not None and now - engine.sick_since >= 300
        stalled = engine.sick_since is not None and now - engine.sick_since >= 30
        if not up:
            state = "down"
        elif sick:
            state = "stuck"
        elif stalled:
            state = "stalled"
        else:
            state = "busy" if engine.traffic else "idle"
        since = engine.sick_since + 300 if sick and engine.sick_since is not None else started
        moved = now - 1 if state == "busy" and now - 1 > started + engine.loads_for else None
        return TargetReport(
            name=engine.name,
            url="http://x:1",
            state=state,
            sentence=f"{state}: told by the test",
            reason="r",
            since=since,
            held=0.0 if state == "idle" else 3.0,
            last_observation=now - 0.5,
            process_started=started if seen else START - 90000,
            last_restart_seen=started if seen and started > START else None,
            last_progress=moved,
            idle_verified_at=now - 0.5 if state == "idle" and engine.canary else None,
        )

    async def targets(self) -> Outcome[tuple[TargetReport, ...]]:
        if not self.reachable:
            return failed(Status.UNAVAILABLE, "connection refused")
        return Outcome(Status.OK, tuple(map(self.report, self.engines.values())))

    async def target(self, name: str) -> Outcome[TargetReport]:
        if not self.reachable:
            return failed(Status.UNAVAILABLE, "connection refused")
        return Outcome(Status.OK, self.report(self.engines[name]))

    async def proof(self, name: str) -> Outcome[Proof]:
        if not self.reachable:
            return failed(Status.UNAVAILABLE, "connection refused")
        engine = self.engines[name]
        self.clock.advance(6.0)
        report = self.report(engine)
        self.proofs[name] = (self.clock.now, report.state, engine.box.incarnation)
        self.during_proof(engine)
        flat = engine.sick_since if report.state in ("stuck", "stalled") else None
        return Outcome(
            Status.OK,
            Proof(
                name,
                report.state,
                report.sentence,
                "r",
                self.clock.now,
                flat_since=flat,
                process_started=report.process_started if engine.exporter_sees else None,
                hardware=self.hardware,
            ),
        )


class Alertmanager:
    """Fires for what the exporter calls stuck."""

    def __init__(self, exporter: Exporter, url: str = "http://am") -> None:
        self.url = url
        self.exporter = exporter
        self.reachable = True
        self.silenced: set[str] = set()

    async def alerts(self) -> Outcome[tuple[ActiveAlert, ...]]:
        if not self.reachable:
            return failed(Status.UNAVAILABLE, "connection refused")
        stuck = [e.name for e in self.exporter.engines.values() if self.exporter.report(e).state == "stuck"]
        return Outcome(Status.OK, tuple(map(self.alert, stuck)))

    def alert(self, name: str) -> ActiveAlert:
        labels = {"alertname": "LLMEngineStuck", "target": name, "remediate": "restart"}
        quiet = name in self.silenced
        return ActiveAlert(labels, "suppressed" if quiet else "active", ("s1",) if quiet else (), (), f"fp-{name}")


class Inbox:
    """`Notifier` that keeps what it is told."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.reachable = True

    async def notify(self, notice: Notice) -> Outcome[None]:
        if not self.reachable:
            return failed(Status.UNAVAILABLE, "no")
        self.notices.append(notice)
        return OK

    def events(self, target: str | None = None) -> list[str]:
        return [n.event for n in self.notices if target in (None, n.target)]


class World:
    """Engines, the outside, and one remediator at a time over one journal file."""

    def __init__(
        self,
        folder: Path,
        names: tuple[str, ...] = ("a", "b", "c"),
        *,
        mode: Mode = Mode.ACT,
        rules: Rules | None = None,
        rules_of: Mapping[str, Rules] | None = None,
        fleet: FleetRules | None = None,
        trigger: str = "alertmanager",
        **settings: Any,
    ) -> None:
        self.clock = Clock()
        self.engines = {name: _engine(name, i) for i, name in enumerate(names)}
        self.docker = Docker(self.clock, self.engines)
        self.exporter = Exporter(self.clock, self.engines)
        self.alertmanager = Alertmanager(self.exporter)
        self.inbox = Inbox()
        self.rules = rules or Rules()
        targets = tuple(
            Target(n, Backend.DOCKER, "local", (Selector(container=f"box-{n}"),), (rules_of or {}).get(n, self.rules))
            for n in names
        )
        self.config = Config(
            mode=mode,
            trigger=trigger,
            exporter=Endpoint("http://exporter"),
            alertmanagers=(Endpoint("http://am"),),
            journal=str(folder / "journal.sqlite"),
            targets=targets,
            docker_hosts=(),
            fleet=fleet or FleetRules(budget=Budget(100, 3600.0), storm_cooldown=0.0),
            diagnostics=Diagnostics(),
            **settings,
        )
        asked = (self.alertmanager,) if trigger == "alertmanager" else ()
        self.commands = Commands(self.clock, self.docker)
        self.outside = Outside(
            {(Backend.DOCKER, "local"): self.docker}, self.exporter, asked, self.clock, commands=self.commands
        )
        self.journal = JournalThread(self.config.journal)
        self.remediator: Remediator | None = None

    def open(self) -> Remediator:
        """A new remediator process, before its first look."""
        self.journal = JournalThread(self.config.journal)
        self.journal.start()
        self.remediator = Remediator(self.config, self.outside, self.journal, [self.inbox], "test")
        return self.remediator

    async def crash(self) -> None:
        """The process ends: tasks vanish, the file stays."""
        if self.remediator is not None:
            await self.remediator.stop()
        self.journal.close()
        self.remediator = None

    async def look(self, seconds: float = 30.0) -> None:
        """Time passes, then one look, with everything that it begins."""
        assert self.remediator is not None
        self.clock.advance(seconds)
        await self.remediator.worker.tick()
        await self.remediator.worker.drain()
        await self.remediator.courier.deliver()

    async def looks(self, seconds: float, every: float = 30.0) -> None:
        """Looks for so long."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            await self.look(every)

    async def decisions(self, target: str | None = None) -> list[tuple[str, str]]:
        """(decision, reason), oldest first."""
        assert self.remediator is not None
        found = await self.remediator.decisions(target=target, limit=1000)
        return [(d.decision, d.reason) for d in reversed(found)]

    async def results(self) -> list[str]:
        """How attempts ended, oldest first."""
        rows = await self.journal.run(lambda db: db.execute("SELECT result FROM attempts ORDER BY id").fetchall())
        return [row["result"] for row in rows]


def _engine(name: str, number: int) -> Engine:
    container = f"{number + 1:02x}" * 32
    began = START - 7200
    box = Container(
        id=container,
        name=f"box-{name}",
        state="running",
        running=True,
        paused=False,
        restarting=False,
        started_at=began,
        started_at_raw=repr(began),
        pid=100,
        init=True,
    )
    return Engine(name, container, box, events=[Event(began, "start")])
