"""The remediator's side of our rule: facts in the remediator's own types, its gates, and its verification."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.week.page import UNIX_AT_START
from benchmarks.week.score import Cause
from benchmarks.week.world import World
from llm_exporter.judge import Observation, Verdict
from llm_remediator.containers import Container, Process, Selector
from llm_remediator.history import Attempt, ForeignStart, History, Phase, Step
from llm_remediator.outcome import Outcome, Status
from llm_remediator.policy import decide
from llm_remediator.rules import Backend, Mode, Target
from llm_remediator.snapshot import Alert, Decision, FleetFacts, FleetMember, Member, ProofFacts, Snapshot, Verb, Witness
from llm_remediator.verdicts import Proof, TargetReport
from llm_remediator.verification import verify

_CAUSES = {Cause.PERSON: "api", Cause.DEPLOYMENT: "deployment", Cause.POLICY: "policy"}


class Gates:
    """One target of the remediator in ``mode: act``, with its default rules and a journal in memory."""

    def __init__(self, world: World) -> None:
        self._world = world
        selector = Selector(container=world.server.name)
        self._target = Target(world.server.name, Backend.DOCKER, "local", (selector,))
        self._attempts: list[Attempt] = []
        self._state_at_start: dict[float, str] = {}
        self._report: TargetReport | None = None
        self.refusals: dict[str, int] = {}

    def saw(self, observation: Observation, verdict: Verdict, state_since: float) -> None:
        """The exporter's report after a look, as ``GET /api/v1/targets/NAME`` tells it."""
        before = self._report
        lane = verdict.lanes[0] if verdict.lanes else None
        unserved = observation.reach in ("refused", "reset", "loading")
        now = self._unix(self._world.now)
        for start, _ in self._world.starts:
            self._state_at_start.setdefault(start, before.state if before is not None else "")
        self._report = TargetReport(
            name=self._target.name,
            url="",
            state=verdict.state.value,
            sentence=verdict.sentence,
            reason=verdict.reason,
            since=self._unix(state_since),
            progress=verdict.progress,
            held=verdict.held,
            up=observation.reach == "answered",
            last_observation=now,
            process_started=now - observation.age if observation.age is not None else None,
            incarnation=observation.incarnation,
            last_restart_seen=now if verdict.restarted else (before.last_restart_seen if before else None),
            last_unserved=now if unserved else (before.last_unserved if before else None),
            idle_verified_at=self._maybe_unix(lane.verified_at if lane else None),
            last_progress=self._maybe_unix(lane.last_progress if lane else None),
        )

    def verify(self) -> None:
        """Close the open attempt once the remediator's own verification says how it ended."""
        if not self._attempts or not self._attempts[-1].open or self._report is None:
            return
        attempt = self._attempts[-1]
        said = verify(
            now=self._unix(self._world.now),
            acting_at=attempt.at,
            acted_at=attempt.acted_at or attempt.at,
            within=self._target.rules.verify_within,
            report=self._report,
            report_fault="",
            containers=[Outcome(Status.OK, self._container())],
        )
        if said.result is not None:
            closed = replace(attempt, phase=Phase.CLOSED, result=said.result, closed_at=self._unix(self._world.now))
            self._attempts[-1] = closed

    def allow(self, verdict: Verdict) -> bool:
        """Whether all gates pass; then an attempt is written down and the caller restarts."""
        decision = decide(self._snapshot(verdict))
        if not isinstance(decision, Decision):
            raise TypeError(f"a gate asks for {decision}, which this snapshot was to contain")
        if decision.verb is not Verb.ACT:
            self.refusals[decision.gate] = self.refusals.get(decision.gate, 0) + 1
            return False
        now = self._unix(self._world.now)
        box = self._container()
        step = Step(0, "local", box.id, box.name, box.started_at, box.started_at_raw, 60.0, acting_at=now)
        number = len(self._attempts) + 1
        self._attempts.append(
            Attempt(number, self._target.name, False, Phase.VERIFYING, now, None, now, now + 10.0, steps=(step,))
        )
        return True

    def _snapshot(self, verdict: Verdict) -> Snapshot:
        now = self._unix(self._world.now)
        box = self._container()
        return Snapshot(
            now=now,
            mode=Mode.ACT,
            target=self._target,
            alert=Alert(self._target.name, "LLMEngineStuck", True, now, "webhook"),
            report=self._report,
            members=(Member(self._target.selectors[0], box),),
            history=History(tuple(self._attempts), self._foreign_starts()),
            fleet=FleetFacts((FleetMember(self._target.name, verdict.state.value, None),)),
            alertmanagers_configured=1,
            processes=((Process(1, 0, "Ssl", "ep_poll", None, "vllm"),),),
            proof=ProofFacts(Outcome(Status.OK, self._proof(verdict)), (box.incarnation,)),
            witnesses=(Witness("http://alertmanager", True, 1),),
        )

    def _proof(self, verdict: Verdict) -> Proof:
        report = self._report
        lane = next((lane for lane in verdict.lanes if lane.lane == verdict.lane), None)
        return Proof(
            target=self._target.name,
            state=verdict.state.value,
            sentence=verdict.sentence,
            reason=verdict.reason,
            observed_at=self._unix(self._world.now),
            lane=verdict.lane,
            progress=verdict.progress,
            held=verdict.held,
            flat_since=self._maybe_unix(lane.flat_since if lane else None),
            process_started=report.process_started if report else None,
            hardware=verdict.hardware,
        )

    def _container(self) -> Container:
        """Docker's view: a deployment makes a new id, every other start keeps it."""
        started = self._unix(self._world.started)
        deployments = sum(cause is Cause.DEPLOYMENT for _, cause in self._world.starts)
        return Container(
            id=f"{deployments:064x}",
            name=self._target.name,
            state="running",
            running=True,
            paused=False,
            restarting=False,
            started_at=started,
            started_at_raw=str(started),
            pid=1,
        )

    def _foreign_starts(self) -> tuple[ForeignStart, ...]:
        container = self._container().id
        return tuple(
            ForeignStart(container, self._unix(at), _CAUSES[cause], self._state_at_start.get(at, ""))
            for at, cause in self._world.starts
            if cause is not Cause.RULE
        )

    def _unix(self, at: float) -> float:
        return UNIX_AT_START + at

    def _maybe_unix(self, at: float | None) -> float | None:
        return None if at is None else self._unix(at)
