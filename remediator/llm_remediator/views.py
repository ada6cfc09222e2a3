"""What the page, the API and the metrics show, made from the last snapshot of each target. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from llm_remediator.mapping import mismatch
from llm_remediator.policy import GATES, approval, budget_left, cooldown_until, decide, remedy
from llm_remediator.policy.words import clock
from llm_remediator.rules import Mode, Target
from llm_remediator.service import Explanation, GateView, TargetView
from llm_remediator.snapshot import Alert, Decision, Fact, GateResult, Snapshot, Verb

_WAITS = {
    Fact.PROCESSES: "a look at its processes",
    Fact.PROOF: "a fresh proof from the exporter",
    Fact.WITNESSES: "a word from every Alertmanager",
}


def as_if_firing(snapshot: Snapshot, source: str) -> Snapshot:
    """The same moment, were the alert firing now."""
    alert = snapshot.alert
    if alert is not None and alert.firing:
        return replace(snapshot, alert=replace(alert, seen_at=snapshot.now))
    return replace(snapshot, alert=Alert(snapshot.target.name, "", True, snapshot.now, source))


def explanation(snapshot: Snapshot, results: Iterable[GateResult], evidence: dict[str, object]) -> Explanation:
    """All gates, and the decision that they make together."""
    decided = decide(snapshot)
    if isinstance(decided, Fact):
        would = "act" if snapshot.mode is Mode.ACT else "would_act"
        text = f"every gate that can be asked now passes; it still needs {_needed(snapshot, decided)}"
        verb, reason = would, f"needs_{decided.value}"
    else:
        verb, reason, text = decided.verb.value, decided.reason, decided.text
    return Explanation(
        target=snapshot.target.name,
        at=snapshot.now,
        decision=verb,
        reason=reason,
        text=text,
        gates=tuple(GateView(r.gate, r.answer.passed, r.answer.text) for r in results),
        evidence=evidence,
    )


def _needed(snapshot: Snapshot, fact: Fact) -> str:
    person = ", and then a person's approval" if approval(snapshot).passed is None else ""
    return f"{_WAITS[fact]}{person}"


def unseen(target: Target) -> TargetView:
    """A target before the first look."""
    return TargetView(
        name=target.name,
        phase="idle",
        state="unknown",
        sentence="not looked at yet",
        alert="none",
        container=", ".join(map(str, target.selectors)),
        host=target.host,
        next_action="none before the first look",
        next_gate=GATES[0][0],
        next_possible_at=None,
        in_progress=False,
        latched=False,
        latch_reason="",
        paused_until=None,
        pause_reason="",
        budget_remaining=target.rules.budget.restarts,
        budget_total=target.rules.budget.restarts,
        cooldown_until=None,
        last_restart=None,
        foreign_owner="",
        wrong_container=False,
    )


def target_view(last: Snapshot, now: float, phase: str) -> TargetView:
    """One target. `phase`: of the attempt in flight, empty if none."""
    snapshot = replace(last, now=max(now, last.now))
    target, history, report = snapshot.target, snapshot.history, snapshot.report
    ids = frozenset(c.id for c in snapshot.containers)
    cooldown = cooldown_until(history, target.rules, snapshot.now, snapshot.started_at)
    pauses = [p for p in snapshot.pauses if p.until > snapshot.now]
    pause = max(pauses, key=lambda p: p.until, default=None)
    latch = history.latch
    gate, action, waits = _next(as_if_firing(snapshot, "view"))
    made = [a.at for a in history.attempts if a.counts and a.acting_at is not None]
    # At the moment of that look: a question whose proof just grew old is open until the next one.
    decided = decide(last)
    waits_for_person = isinstance(decided, Decision) and decided.verb is Verb.AWAITING_APPROVAL
    awaiting = decided.text if isinstance(decided, Decision) and waits_for_person else ""
    foreign = next((d for g, d in _refusals(snapshot) if g == "foreign_owner"), "")
    return TargetView(
        name=target.name,
        phase=phase or ("latched" if latch is not None else "backoff" if waits else "idle"),
        state=report.state if report is not None else "unknown",
        sentence=report.sentence if report is not None else snapshot.report_fault,
        alert="none" if snapshot.alert is None else "firing" if snapshot.alert.firing else "resolved",
        container=_containers(snapshot),
        host=target.host,
        next_action=action,
        next_gate="in_flight" if phase else gate,
        next_possible_at=cooldown if cooldown is not None and cooldown > snapshot.now else None,
        in_progress=bool(phase),
        latched=latch is not None,
        latch_reason=latch.text if latch is not None else "",
        paused_until=pause.until if pause is not None else None,
        pause_reason=pause.reason if pause is not None else "",
        budget_remaining=budget_left(history, target.rules, snapshot.now, ids),
        budget_total=target.rules.budget.restarts,
        cooldown_until=cooldown,
        last_restart=made[-1] if made else None,
        foreign_owner=foreign,
        wrong_container=latch is not None and latch.reason == "wrong_container",
        awaiting_approval=awaiting,
        approval_request=history.approval.id if awaiting and history.approval is not None else None,
        warnings=_warnings(snapshot),
    )


def _next(snapshot: Snapshot) -> tuple[str, str, bool]:
    decided = decide(snapshot)
    what = remedy(snapshot)
    verb = what if snapshot.mode is Mode.ACT else f"note that it would {what} (mode observe)"
    if isinstance(decided, Fact):
        asks = approval(snapshot).passed is None
        return "approval" if asks else "none", f"{verb} once {_needed(snapshot, decided)} confirms it", False
    if decided.verb in (Verb.ACT, Verb.WOULD_ACT):
        return "none", verb, False
    return decided.gate, f"none: {decided.text}", decided.gate in ("cooldown", "budget")


def _refusals(snapshot: Snapshot) -> Sequence[tuple[str, str]]:
    answers = ((name, gate(snapshot)) for name, gate in GATES)
    return [(name, answer.text) for name, answer in answers if answer.passed is False]


def _containers(snapshot: Snapshot) -> str:
    words = []
    for member in snapshot.members:
        box = member.container
        if box is None:
            words.append(member.fault or f"{member.selector}: not found")
        else:
            since = f" since {clock(box.started_at)}" if box.started_at is not None else ""
            words.append(f"{member.selector}: {box.name} ({box.id[:12]}), {box.state}{since}")
    return "; ".join(words) or ", ".join(map(str, snapshot.target.selectors))


def _warnings(snapshot: Snapshot) -> tuple[str, ...]:
    warnings = []
    report = snapshot.report
    if report is None and snapshot.report_fault:
        warnings.append(snapshot.report_fault)
    for box in snapshot.containers:
        if report is not None and len(snapshot.members) == 1 and (text := mismatch(report.url, box)):
            warnings.append(text)
        if not box.init and box.pid:
            warnings.append(f"{box.name} runs without an init (docker run --init, compose init: true): zombies stay")
    return tuple(warnings)
