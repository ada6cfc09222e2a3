"""The page: what each target is, what would be done to it and when, and why not now. Pure; no scripts.

Colours never stand alone: every mark has its word. Buttons lead to a form that says what it will do.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from llm_common.config import format_duration
from llm_remediator.markup import Child, Markup, join, tag
from llm_remediator.origin import FIELD
from llm_remediator.page_style import STYLE
from llm_remediator.service import DecisionView, Explanation, GateView, Overview, TargetView

_GOOD = frozenset({"busy", "idle", "sleeping", "starting"})
_BAD = frozenset({"stuck", "failed", "down"})
_SHOWN_EVIDENCE = 20_000


def front(seen: Overview, targets: Sequence[TargetView], decisions: Sequence[DecisionView], now: float | None = None) -> str:
    """All targets, the state of the remediator, the last decisions."""
    now = time.time() if now is None else now
    return _document(
        "Remediator",
        _status(seen, now),
        tag("section", tag("h2", "Targets"), *(_card(t, seen, now) for t in targets), class_="targets"),
        _decisions(decisions, now),
        refresh=True,
    )


def target(
    seen: Overview,
    view: TargetView,
    explained: Explanation,
    decisions: Sequence[DecisionView],
    now: float | None = None,
) -> str:
    """One target: what would happen if its alert fired now, gate by gate."""
    now = time.time() if now is None else now
    return _document(
        view.name,
        tag("p", tag("a", "← all targets", href="/")),
        _card(view, seen, now, linked=False),
        tag(
            "section",
            tag("h2", "If the alert fired now"),
            tag("p", tag("strong", explained.decision), f": {explained.text}"),
            _gates(explained.gates),
            _evidence(explained.evidence),
        ),
        _decisions(decisions, now),
    )


def confirm(action: str, name: str | None, token: str, asked: TargetView | None = None) -> str:
    """The form behind a button. Only this POSTs. `asked`: the target whose question `approve` answers."""
    whom = f"target {name}" if name is not None else "all targets"
    says, verb = {
        "pause": (f"Pause {whom}: nothing is restarted until the pause ends by itself.", "Pause"),
        "resume": (f"Resume {whom}: a stuck one may be restarted at once.", "Resume"),
        "rearm": (
            f"Re-arm {whom}: forget the failed attempts. Do this after you have found out why they failed; "
            "if it is stuck, it may be restarted at once.",
            "Re-arm",
        ),
        "approve": (
            f"{asked.awaiting_approval if asked is not None else whom}. Every gate is asked once more; if all pass, it is "
            "done at once. Your approval is for this start of the container alone.",
            "Approve",
        ),
    }[action]
    scope = f"targets/{quote(name, safe='')}/" if name is not None else ""
    fields: list[Child] = [tag("input", type="hidden", name=FIELD, value=token)]
    if action == "pause":
        fields.append(tag("label", "For ", tag("input", name="for", value="1h", size="6", required=True)))
        fields.append(tag("label", "Why ", tag("input", name="reason", maxlength="500")))
    if asked is not None:
        fields.append(tag("input", type="hidden", name="request", value=str(asked.approval_request)))
    named = tag("input", name="by", maxlength="100", autocomplete="name", required=action == "approve")
    fields.append(tag("label", "Your name ", named))
    fields.append(tag("button", verb, type="submit"))
    fields.append(tag("a", "Cancel", href="/", class_="button quiet"))
    return _document(
        f"{verb} {whom}",
        tag("h2", f"{verb} {whom}?"),
        tag("p", says),
        tag("form", *fields, method="post", action=f"/api/v1/{scope}{action}"),
    )


# --- parts


def _document(title: str, *body: Child, refresh: bool = False) -> str:
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="refresh", content="30") if refresh else None,
        tag("title", f"{title} · Stuckproof"),
        tag("style", STYLE),
    )
    header = tag("header", tag("h1", tag("a", "Stuckproof remediator", href="/")))
    return "<!doctype html>\n" + tag("html", head, tag("body", header, tag("main", *body)), lang="en") + "\n"


def _status(seen: Overview, now: float) -> Markup:
    lights: list[Markup] = [
        _light(seen.journal_writable, "journal", "cannot store"),
        _light(seen.exporter_up, "exporter", "does not answer"),
        *(_light(up, f"Docker {host}", "does not answer") for host, up in seen.docker_up.items()),
        *(_light(up, url, "does not answer") for url, up in seen.alertmanager_up.items()),
        _light(not seen.breaker_open, "breaker", f"open: {seen.breaker_reason}", fine="closed"),
    ]
    says = {
        "observe": "decides and records, and touches nothing",
        "act": "restarts what is provably stuck",
    }.get(seen.mode, "")
    notes: list[Child] = []
    if seen.mode != seen.configured_mode:
        notes.append(tag("p", f"Configured: {seen.configured_mode}. {seen.mode_reason}", class_="note bad"))
    if seen.paused_until is not None:
        why = f": {seen.pause_reason}" if seen.pause_reason else ""
        notes.append(tag("p", "All paused until ", _when(seen.paused_until, now), why, class_="note"))
    if seen.trigger == "exporter":
        notes.append(tag("p", "No Alertmanager is asked: silences are not honoured.", class_="note"))
    notes += [tag("p", w, class_="note") for w in seen.warnings]
    return tag(
        "section",
        tag("p", tag("strong", f"Mode {seen.mode}"), f": {says}. Version {seen.version}, last full look ",
            _when(seen.last_reconcile, now), "."),
        *notes,
        tag("ul", *(tag("li", light) for light in lights), class_="lights"),
        tag("p", _button("pause", None), _button("resume", None) if seen.paused_until is not None else None),
        class_="status",
    )  # fmt: skip


def _light(good: bool, what: str, trouble: str, fine: str = "ok") -> Markup:
    mark = tag("span", "✓" if good else "✗", class_="good" if good else "bad", aria_hidden="true")
    return join(mark, " ", f"{what}: {fine if good else trouble}")


def _card(view: TargetView, seen: Overview, now: float, *, linked: bool = True) -> Markup:
    kind = "good" if view.state in _GOOD else "bad" if view.state in _BAD else "odd"
    name = tag("a", view.name, href=f"/targets/{quote(view.name, safe='')}") if linked else view.name
    flags: list[tuple[bool, str]] = [
        (bool(view.awaiting_approval), f"A person decides: {view.awaiting_approval}"),
        (view.latched, f"Latched: {view.latch_reason}"),
        (bool(view.foreign_owner), f"Somebody else restarts it, we stand down: {view.foreign_owner}"),
        (view.wrong_container, "Our restart was not seen at its address: check its container in remediator.yml"),
    ]
    alarms = [tag("p", text, class_="note bad") for on, text in flags if on]
    if view.paused_until is not None:
        why = f": {view.pause_reason}" if view.pause_reason else ""
        alarms.append(tag("p", "Paused until ", _when(view.paused_until, now), why, class_="note"))
    alarms += [tag("p", w, class_="note") for w in view.warnings]
    facts: list[tuple[str, Child]] = [
        ("Next", view.next_action),
        ("Refusing gate", view.next_gate),
        ("Earliest", _when(view.next_possible_at, now) if view.next_possible_at is not None else None),
        ("Phase", view.phase),
        ("Alert", view.alert),
        ("Container", f"{view.container} on {view.host}"),
        ("Budget", f"{view.budget_total - view.budget_remaining} of {view.budget_total} starts used"),
        ("Last restart", _when(view.last_restart, now)),
    ]
    listed = [x for k, v in facts if v not in (None, "") for x in (tag("dt", k), tag("dd", v))]
    return tag(
        "article",
        tag("h3", name, " ", tag("span", view.state, class_=f"state {kind}")),
        tag("p", view.sentence),
        *alarms,
        tag("dl", *listed),
        tag(
            "p",
            _button("pause", view.name),
            _button("resume", view.name) if view.paused_until is not None else None,
            _button("rearm", view.name) if view.latched else None,
            _button("approve", view.name) if view.awaiting_approval else None,
        ),
    )


def _button(action: str, name: str | None) -> Markup:
    words = {"pause": "Pause", "resume": "Resume", "rearm": "Re-arm", "approve": "Approve"}[action]
    query = f"?target={quote(name, safe='')}" if name is not None else ""
    label = f"{words}…" if name is not None else f"{words} all…"
    return tag("a", label, href=f"/confirm/{action}{query}", class_="button")


def _gates(gates: Sequence[GateView]) -> Markup:
    def row(gate: GateView) -> Markup:
        mark, kind, word = {
            True: ("✓", "good", "passes"),
            False: ("✗", "bad", "refuses"),
            None: ("○", "odd", "not asked"),
        }[gate.passed]
        head = join(tag("span", mark, class_=kind, aria_hidden="true"), " ", tag("strong", gate.name))
        return tag("li", head, f" {word}: ", gate.text)

    return tag("ol", *(row(g) for g in gates), class_="gates")


def _decisions(decisions: Sequence[DecisionView], now: float) -> Markup:
    if not decisions:
        return tag("section", tag("h2", "Decisions"), tag("p", "None yet."))
    return tag("section", tag("h2", "Decisions"), *(_decision(d, now) for d in decisions), class_="decisions")


def _decision(decision: DecisionView, now: float) -> Markup:
    kind = {"act": "good", "would_act": "good", "latch": "bad"}.get(decision.decision, "odd")
    outcome = f", {decision.outcome}" if decision.outcome else ""
    head = tag(
        "summary",
        _when(decision.at, now),
        " ",
        tag("strong", decision.target),
        " ",
        tag("span", f"{decision.decision}{outcome}", class_=f"state {kind}"),
        f" {decision.reason}: {decision.text}",
    )
    return tag("details", head, _gates(decision.gates), _evidence(decision.evidence))


def _evidence(evidence: Mapping[str, Any]) -> Markup | None:
    if not evidence:
        return None
    text = json.dumps(evidence, indent=1, default=str, ensure_ascii=False)
    if len(text) > _SHOWN_EVIDENCE:
        text = text[:_SHOWN_EVIDENCE] + "\n… (all of it: /api/v1/decisions)"
    return tag("details", tag("summary", "Evidence"), tag("pre", text))


def _when(at: float | None, now: float) -> Markup:
    if at is None:
        return join("never")
    try:
        moment = datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):
        return join("at an impossible time")
    far = format_duration(max(1.0, float(round(abs(now - at)))))
    words = f"{moment:%Y-%m-%d %H:%M:%S} UTC ({'in ' + far if at > now else far + ' ago'})"
    return tag("time", words, datetime=moment.isoformat(timespec="seconds"))
