"""Whether a target may be restarted now: pure functions over one immutable snapshot.

Every gate is a function `Snapshot -> Answer` with its own words. They run in the order of `GATES`; the
first that does not pass decides. A gate that needs a costly fact says which, so that nothing is asked of
the outside while a cheaper gate refuses already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from llm_remediator.policy import fleet, limits, proof, standing
from llm_remediator.policy.approval import approval
from llm_remediator.policy.fleet import breaker
from llm_remediator.policy.ladder import remedy
from llm_remediator.policy.limits import budget_left, cooldown_until, failures, starts_in_window
from llm_remediator.rules import Mode
from llm_remediator.snapshot import Answer, Decision, Fact, GateResult, Snapshot, Verb

__all__ = [
    "GATES",
    "approval",
    "breaker",
    "budget_left",
    "cooldown_until",
    "decide",
    "explain",
    "failures",
    "remedy",
    "starts_in_window",
]

Gate = Callable[[Snapshot], Answer]

GATES: Final[tuple[tuple[str, Gate], ...]] = (
    ("clock", standing.clock),
    ("journal", standing.journal),
    ("leader", standing.leader),
    ("paused", standing.paused),
    ("window", standing.window),
    ("alert", standing.alert),
    ("state", standing.state),
    ("container", standing.container),
    ("running", standing.running),
    ("orchestrator", standing.orchestrator),
    ("startup_grace", standing.startup_grace),
    ("in_flight", limits.in_flight),
    ("latched", limits.latched),
    ("cooldown", limits.cooldown),
    ("budget", limits.budget),
    ("foreign_owner", limits.foreign_owner),
    ("breaker", fleet.breaker_closed),
    ("concurrency", fleet.concurrency),
    ("approval", approval),
    ("unkillable", proof.killable),
    ("proof", proof.fresh_proof),
    ("alertmanager", proof.still_firing),
)


def decide(snapshot: Snapshot) -> Decision | Fact:
    """The decision, or the fact that the next gate needs before there can be one."""
    what = remedy(snapshot)
    for name, gate in GATES:
        answer = gate(snapshot)
        if answer.passed is None and answer.needs is not None:
            return answer.needs
        if not answer.passed:
            return Decision(
                target=snapshot.target.name,
                at=snapshot.now,
                verb=answer.verb,
                gate=name,
                reason=answer.reason or name,
                text=answer.text,
                remedy=what,
            )
    act = snapshot.mode is Mode.ACT
    would = "" if act else "would "
    return Decision(
        target=snapshot.target.name,
        at=snapshot.now,
        verb=Verb.ACT if act else Verb.WOULD_ACT,
        gate="none",
        reason="proven",
        text=f"{would}{what}{'' if act else ' (mode observe)'}: {proof.words(snapshot)}",
        remedy=what,
    )


def explain(snapshot: Snapshot) -> tuple[GateResult, ...]:
    """Every gate's answer, whatever the ones before it said."""
    return tuple(GateResult(name, gate(snapshot)) for name, gate in GATES)
