"""Snapshots for the gates: one in which everything passes, and words to spoil it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from llm_remediator.containers import Container, Process, Selector
from llm_remediator.history import Attempt, ForeignStart, History, Phase, Result, Step
from llm_remediator.outcome import Outcome, Status
from llm_remediator.rules import Backend, Mode, Rules, Target
from llm_remediator.snapshot import Alert, FleetFacts, FleetMember, Member, ProofFacts, Snapshot, Witness
from llm_remediator.verdicts import Proof, TargetReport

NOW = 1_800_000_000.0
HOUR = 3600.0
ID = "ab" * 32
SELECTOR = Selector(compose_project="llm", compose_service="vllm")


def box(**changes: Any) -> Container:
    """A plainly running container, started two hours ago."""
    base = Container(
        id=ID,
        name="llm-vllm-1",
        state="running",
        running=True,
        paused=False,
        restarting=False,
        started_at=NOW - 2 * HOUR,
        started_at_raw="t0",
        pid=100,
    )
    return replace(base, **changes)


def report(**changes: Any) -> TargetReport:
    """A stuck target, seen a moment ago."""
    base = TargetReport(
        name="a",
        url="http://vllm:8000",
        state="stuck",
        sentence="stuck: 3 held, nothing moved for 6m",
        reason="flat",
        since=NOW - 60,
        last_observation=NOW - 2,
        held=3.0,
    )
    return replace(base, **changes)


def proof(**changes: Any) -> Proof:
    """A fresh proof that it is stuck."""
    base = Proof(
        target="a",
        state="stuck",
        sentence="stuck: 3 held, nothing moved for 6m",
        reason="flat",
        observed_at=NOW - 1,
        flat_since=NOW - 360,
        process_started=NOW - 2 * HOUR + 3,
    )
    return replace(base, **changes)


def proven(**changes: Any) -> ProofFacts:
    """That proof, with the incarnation it was made of."""
    return ProofFacts(Outcome(Status.OK, proof(**changes)), (box().incarnation,))


def target(rules: Rules | None = None, **changes: Any) -> Target:
    """The target `a`."""
    return replace(Target("a", Backend.DOCKER, "local", (SELECTOR,), rules or Rules()), **changes)


def attempt(at: float, result: Result | None = Result.FAILED, **changes: Any) -> Attempt:
    """An attempt that acted at `at` and ended five minutes later."""
    step = Step(0, "local", ID, "llm-vllm-1", at - HOUR, "before", 60.0, acting_at=at, acted_at=at + 5)
    base = Attempt(
        id=int(at),
        target="a",
        simulated=False,
        phase=Phase.CLOSED if result is not None else Phase.VERIFYING,
        created_at=at - 1,
        acting_at=at,
        acted_at=at + 5,
        closed_at=at + 300 if result is not None else None,
        result=result,
        steps=(step,),
    )
    return replace(base, **changes)


def foreign(at: float, cause: str = "api", state: str = "", container: str = ID) -> ForeignStart:
    """Somebody else's start."""
    return ForeignStart(container, at, cause, state)


def history(*attempts: Attempt, **changes: Any) -> History:
    """What the journal knows."""
    return replace(History(attempts=tuple(sorted(attempts, key=lambda a: a.at))), **changes)


def fleet(*states: str, since: float = NOW - 60, **changes: Any) -> FleetFacts:
    """A fleet of targets `a`, `b`, … in these states."""
    members = tuple(FleetMember(chr(97 + i), state, since - 600 * i) for i, state in enumerate(states))
    return replace(FleetFacts(members), **changes)


def ready(**changes: Any) -> Snapshot:
    """A snapshot that every gate lets through."""
    base = Snapshot(
        now=NOW,
        mode=Mode.ACT,
        target=target(),
        newest_seen=NOW - 1,
        alert=Alert("a", "LLMEngineStuck", True, NOW - 5, "webhook"),
        report=report(),
        members=(Member(SELECTOR, box()),),
        fleet=fleet("stuck", "busy"),
        alertmanagers_configured=1,
        processes=((Process(100, 1, "Ssl", "ep_poll", 10.0, "python"),),),
        proof=proven(),
        witnesses=(Witness("http://am", True, firing=1),),
    )
    return replace(base, **changes)


def with_box(**changes: Any) -> Snapshot:
    """`ready` with another container."""
    return ready(members=(Member(SELECTOR, box(**changes)),))
