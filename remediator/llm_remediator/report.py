"""`llm-remediator report`: what was, or in observe mode would have been, restarted, and what happened next. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from llm_remediator.service import DecisionView

_ACTS = frozenset({"act", "would_act"})


@dataclass(frozen=True, slots=True)
class Acted:
    """One restart, real or simulated."""

    at: float
    real: bool
    why: str
    outcome: str
    """What became of it, in words; empty while that is open."""


@dataclass(frozen=True, slots=True)
class TargetReport:
    """One target in the reported time. `refused`: how many looks each reason turned away."""

    target: str
    acted: tuple[Acted, ...] = ()
    refused: tuple[tuple[str, int], ...] = ()
    latches: tuple[tuple[float, str], ...] = field(default=())


def summarize(decisions: Iterable[DecisionView], targets: Sequence[str]) -> list[TargetReport]:
    """Decisions in any order, drills left out; targets without any are reported too."""
    acted: dict[str, list[Acted]] = {name: [] for name in targets}
    refused: dict[str, Counter[str]] = {name: Counter() for name in targets}
    latches: dict[str, list[tuple[float, str]]] = {name: [] for name in targets}
    for decision in sorted(decisions, key=lambda d: d.at):
        if decision.target not in acted or decision.evidence.get("kind") == "drill":
            continue
        if decision.decision in _ACTS:
            real = decision.decision == "act"
            acted[decision.target].append(Acted(decision.at, real, decision.text, decision.outcome))
        elif decision.decision == "latch":
            latches[decision.target].append((decision.at, decision.text))
        else:
            refused[decision.target][decision.reason] += int(decision.evidence.get("count", 1))
    return [
        TargetReport(name, tuple(acted[name]), tuple(refused[name].most_common()), tuple(latches[name])) for name in targets
    ]


def text(reports: Sequence[TargetReport], mode: str, span: str) -> str:
    """For people."""
    real = sum(a.real for r in reports for a in r.acted)
    would = sum(not a.real for r in reports for a in r.acted)
    needless = sum("needless" in a.outcome for r in reports for a in r.acted if not a.real)
    lines = [f"The last {span}, mode {mode} now: {real} restarts made, {would} would have been made in mode observe."]
    if would:
        lines.append(f"Of those, {needless} would have been needless.")
    for report in reports:
        lines += ["", f"{report.target}:"]
        for act in report.acted:
            what = "restarted" if act.real else "would have restarted"
            lines.append(f"  {_stamp(act.at)} {what}: {act.why}")
            lines.append(f"    next: {act.outcome or 'not known yet'}")
        lines += [f"  {_stamp(at)} latched: {why}" for at, why in report.latches]
        if report.refused:
            lines.append("  refused: " + ", ".join(f"{reason} x{count}" for reason, count in report.refused))
        if not report.acted and not report.refused and not report.latches:
            lines.append("  nothing asked for a restart")
    return "\n".join(lines) + "\n"


def _stamp(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
