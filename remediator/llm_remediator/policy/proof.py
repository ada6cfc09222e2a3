"""The last gates, asked only when all others pass: can it be killed, is it stuck now, is it still wanted."""

from __future__ import annotations

from llm_remediator.policy.standing import incarnation_start
from llm_remediator.policy.words import clock, needs, passed, refused, span
from llm_remediator.rules import Backend
from llm_remediator.snapshot import Answer, Fact, Snapshot, Verb
from llm_remediator.verdicts import Proof

SAMPLES = 3
FRESH_WITHIN = 30.0
CLOCK_SLACK = 5.0
"""Seconds by which exporter and Docker host may differ in telling when a process started."""
_NO_FLAT_CLOCK = frozenset({"failed", "down", "starved"})
"""States without a flat clock: they count from when the exporter entered them."""


def killable(snapshot: Snapshot) -> Answer:
    """A process that cannot be killed makes a restart turn 'stuck' into 'down for good'."""
    if snapshot.target.backend is not Backend.DOCKER:
        return passed("not asked of this back end")
    samples = snapshot.processes
    if snapshot.processes_fault:
        return refused(Verb.DEFER, "processes_unknown", f"its processes cannot be listed: {snapshot.processes_fault}")
    if not samples:
        return needs(Fact.PROCESSES, "its processes were not listed")
    asleep = [{p.pid for p in sample if p.stat.startswith("D")} for sample in samples]
    firsts = {c.pid for c in snapshot.containers}
    dead = [{p.pid for p in sample if p.stat.startswith("Z") and p.pid in firsts} for sample in samples]
    always_asleep = set.intersection(*asleep)
    always_dead = set.intersection(*dead)
    if not always_asleep and not always_dead:
        return passed("its processes can be killed")
    if len(samples) < SAMPLES:
        return needs(Fact.PROCESSES, "a process may be unkillable; more samples are needed")
    if always_dead:
        return refused(
            Verb.LATCH,
            "unkillable",
            "the container's first process is a zombie, which Docker cannot end: run it with --init",
        )
    names = {p.pid: f"{p.command} (pid {p.pid}, waits in {p.wchan or '?'})" for p in samples[-1]}
    who = ", ".join(names[pid] for pid in sorted(always_asleep))
    return refused(
        Verb.LATCH,
        "unkillable",
        f"{who} is in uninterruptible sleep: no signal ends it, usually a lost GPU or disk; the host needs a person",
    )


def fresh_proof(snapshot: Snapshot) -> Answer:
    """The exporter looked again just now, at the very incarnation that would be restarted."""
    facts = snapshot.proof
    if facts is None:
        return needs(Fact.PROOF, "a fresh proof was not asked for")
    if not facts.outcome.ok:
        return refused(Verb.DEFER, "proof_unavailable", f"no fresh proof: {facts.outcome.detail or facts.outcome.status}")
    proof = facts.outcome.get()
    if facts.incarnations_before != tuple(c.incarnation for c in snapshot.containers):
        return refused(
            Verb.SKIP,
            "other_incarnation",
            "the container was started anew while the proof was made; what was proven no longer exists",
        )
    age = snapshot.now - proof.observed_at
    if abs(age) > FRESH_WITHIN:
        return refused(Verb.DEFER, "proof_stale", f"the proof is of {clock(proof.observed_at)}, {span(abs(age))} off")
    if proof.state not in snapshot.target.rules.restart_on:
        return refused(Verb.SKIP, "not_confirmed", f"a fresh look says {proof.sentence or proof.state}")
    if proof.hardware:
        return refused(
            Verb.SKIP, "hardware", f"{proof.hardware}: a restart does not mend hardware; a person must look at the host"
        )
    return _of_this_incarnation(snapshot, proof)


def _of_this_incarnation(snapshot: Snapshot, proof: Proof) -> Answer:
    started = incarnation_start(snapshot)
    began = proof.flat_since
    if began is None and proof.state in _NO_FLAT_CLOCK and snapshot.report is not None:
        began = snapshot.report.since
    if began is None:
        return refused(Verb.DEFER, "since_unknown", f"the proof does not say since when it is {proof.state}")
    if started is None:
        return passed(words(snapshot))
    # The exporter sees the leader of a group, which may be older than the member started last.
    oldest = min((c.started_at for c in snapshot.containers if c.started_at is not None), default=started)
    if proof.process_started is not None and proof.process_started < oldest - CLOCK_SLACK:
        return refused(
            Verb.SKIP,
            "other_process",
            f"the exporter sees a process of {clock(proof.process_started)}, the container started "
            f"{clock(oldest)}: the proof is of something else; check url and container of this target",
        )
    grace = snapshot.target.rules.startup_grace
    if began <= started + grace:
        return refused(
            Verb.DEFER,
            "flat_since_startup",
            f"{proof.state} since {clock(began)}, within {span(grace)} of its start ({clock(started)}): "
            "a start that hangs is for a person",
        )
    return passed(words(snapshot))


def still_firing(snapshot: Snapshot) -> Answer:
    """Every Alertmanager is asked now: a silence may be newer than the alert that reached us."""
    if snapshot.alertmanagers_configured == 0:
        return passed("no Alertmanager is configured; no silence can be honoured")
    if snapshot.witnesses is None:
        return needs(Fact.WITNESSES, "the Alertmanagers were not asked")
    for witness in snapshot.witnesses:
        if not witness.reachable:
            return refused(
                Verb.DEFER,
                "alertmanager_unreachable",
                f"{witness.url} does not answer ({witness.detail}); a silence could be there",
            )
    for witness in snapshot.witnesses:
        if witness.suppressed_by:
            return refused(
                Verb.SKIP, "silenced", f"silenced or inhibited at {witness.url} by {', '.join(witness.suppressed_by)}"
            )
        if not witness.firing:
            return refused(Verb.SKIP, "alert_gone", f"{witness.url} has no firing alert for this target any more")
    return passed(f"still firing and not silenced at {len(snapshot.witnesses)} Alertmanagers")


def words(snapshot: Snapshot) -> str:
    """What was proven, in the exporter's words."""
    if snapshot.proof is None or not snapshot.proof.outcome.ok:
        return "not proven"
    proof = snapshot.proof.outcome.get()
    since = f" since {clock(proof.flat_since)}" if proof.flat_since is not None else ""
    return f"{proof.sentence or proof.state}{since}"
