"""The gate for targets where a person has the last word. Nobody is asked before every other gate passes."""

from __future__ import annotations

from llm_remediator.history import Approval
from llm_remediator.policy import proof
from llm_remediator.policy.ladder import remedy
from llm_remediator.policy.words import clock, needs, passed, refused, span
from llm_remediator.rules import Mode
from llm_remediator.snapshot import Answer, Snapshot, Verb


def approval(snapshot: Snapshot) -> Answer:
    """A person's word on this remedy for this incarnation, not expired and not used.

    It stands before the costly gates, so that an engine that waits for a person is not proven again at every
    look; the person is asked only once those pass too, and again when their proof is `approval_expires` old.
    """
    rules = snapshot.target.rules
    if not rules.approve:
        return passed("no approval is asked for")
    if snapshot.mode is Mode.OBSERVE:
        return passed("mode observe; in mode act a person would be asked")
    asked = _question(snapshot)
    if asked is not None and asked.approved_by and snapshot.now < asked.expires_at:
        return passed(f"approved by {asked.approved_by}, good until {clock(asked.expires_at)}")
    if asked is not None and not asked.approved_by and snapshot.now < asked.proven_at + rules.approval_expires:
        since = span(snapshot.now - asked.asked_at)
        return refused(Verb.AWAITING_APPROVAL, "awaiting_approval", f"{asked.text}; asked {since} ago, no answer yet")
    for gate in (proof.killable, proof.fresh_proof, proof.still_firing):
        answer = gate(snapshot)
        if answer.needs is not None:
            return needs(answer.needs, "a person is asked once the gates after this one pass")
        if not answer.passed:
            return passed("nobody is asked while a gate after this one refuses")
    text = f"{remedy(snapshot)} awaits a person's approval: {proof.words(snapshot)}"
    return refused(Verb.AWAITING_APPROVAL, "awaiting_approval", text)


def _question(snapshot: Snapshot) -> Approval | None:
    """The newest question, if it is about what would be done now, and no attempt has used its answer up."""
    found = snapshot.history.approval
    if found is None or found.attempt is not None:
        return None
    same = (found.incarnation, found.remedy) == (snapshot.incarnation, remedy(snapshot))
    return found if same else None
