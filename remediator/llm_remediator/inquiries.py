"""What the subcommands ask and print: of a running remediator over HTTP, or of its journal, read-only."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from llm_common.config import format_duration
from llm_common.terminal import printable
from llm_common.web_config import WebConfig
from llm_remediator import journal_attempts, journal_audit, journal_targets, report
from llm_remediator.config import Config, Endpoint
from llm_remediator.foreign_json import UNREADABLE, why
from llm_remediator.http_client import JsonClient
from llm_remediator.journal_store import reading
from llm_remediator.rules import Mode
from llm_remediator.service import DecisionView

TIMEOUT = 15.0
DRILL_TIMEOUT = 150.0
"""A drill asks for a fresh proof, which takes looks and a canary, and samples processes."""


class AskError(Exception):
    """The running remediator could not be asked, or said no."""


def place(url: str | None, web_config: str | None, token_file: str | None, ca_file: str | None) -> Endpoint:
    """Where the running remediator is, and how to show who we are."""
    web = WebConfig.load(web_config) if web_config is not None else WebConfig()
    default = f"{'https' if web.cert_file else 'http'}://127.0.0.1:10141"
    return Endpoint(
        url=(url or default).rstrip("/"),
        bearer_token_file=token_file or web.bearer_token_file,
        ca_file=ca_file or web.cert_file,
    )


async def ask(
    where: Endpoint, method: str, *paths: str, read: Callable[..., str], body: Mapping[str, str] | None = None
) -> str:
    """The answers to requests below /api/v1 as `read` puts them; `AskError` with a sentence at the first that fails."""
    client = JsonClient(where)
    found = []
    try:
        for path in paths:
            timeout = DRILL_TIMEOUT if path.endswith("/drill") else TIMEOUT
            outcome = await client.call(method, f"/api/v1/{path}", timeout=timeout, body=body)
            if not outcome.ok or not isinstance(outcome.value, dict):
                raise AskError(outcome.detail or f"{where.url} does not answer as llm-remediator")
            found.append(outcome.value)
    finally:
        await client.close()
    try:
        return read(*found)
    except UNREADABLE as exc:
        raise AskError(f"{where.url} does not answer as llm-remediator of this release: {why(exc)}") from exc


def quoted(name: str) -> str:
    """A target's name in a path."""
    return quote(name, safe="")


# --- texts


def status_text(overview: Mapping[str, Any], targets: Mapping[str, Any], *, as_json: bool) -> str:
    """The running remediator's own word."""
    if as_json:
        return json.dumps({"overview": overview, **targets}, indent=2) + "\n"
    lines = [f"mode {overview['mode']}" + (f" ({overview['mode_reason']})" if overview["mode_reason"] else "")]
    if overview["paused_until"] is not None:
        lines.append(f"all paused until {stamp(overview['paused_until'])} {overview['pause_reason']}".rstrip())
    if overview["breaker_open"]:
        lines.append(f"breaker open: {overview['breaker_reason']}")
    for kind, whose in (("docker_up", "host"), ("alertmanager_up", "Alertmanager")):
        lines += [f"{whose} {name} does not answer" for name, up in overview[kind].items() if not up]
    if not overview["exporter_up"]:
        lines.append("the exporter does not answer")
    lines += [f"warning: {w}" for w in overview["warnings"]]
    for view in targets["targets"]:
        state, sentence = view["state"], view["sentence"]
        said = sentence if sentence.startswith(state) else f"{state}: {sentence}"
        next_action = view["next_action"].replace(f"the exporter says {sentence}", f"the exporter says {state}")
        lines += ["", f"{view['name']}: {said}", f"  next: {next_action}"]
        lines.append(f"  refusing gate: {view['next_gate']}; {_budget(view)}")
        lines.append(f"  container: {view['container']} on {view['host']}; alert {view['alert']}; {view['phase']}")
        if view.get("awaiting_approval"):
            lines.append(f"  AWAITS APPROVAL by a person: llm-remediator approve {view['name']} --config.file …")
        if view["latched"]:
            lines.append(f"  LATCHED: {view['latch_reason']}")
        if view["paused_until"] is not None:
            lines.append(f"  paused until {stamp(view['paused_until'])} {view['pause_reason']}".rstrip())
        lines += [f"  warning: {w}" for w in view["warnings"]]
    return _joined(lines)


def status_from_journal(config: Config, *, as_json: bool) -> str:
    """What is known without the running process: latches, pauses, the last decision."""
    observing = config.mode is Mode.OBSERVE
    now = time.time()
    rows: list[dict[str, Any]] = []
    with reading(config.journal) as db:
        pauses = journal_targets.pauses(db, at=now)
        for target in config.targets:
            latch = journal_targets.latch(db, target.name, simulated=observing)
            last = journal_audit.decisions(db, target=target.name, limit=1)
            rows.append(
                {
                    "name": target.name,
                    "latched": latch.text if latch is not None else None,
                    "paused_until": max((p.until for p in pauses if p.target in (None, target.name)), default=None),
                    "last_decision": _line(last[0]) if last else None,
                }
            )
    if as_json:
        return json.dumps({"mode": config.mode.value, "targets": rows}, indent=2) + "\n"
    lines = [f"mode {config.mode.value}"]
    for row in rows:
        lines += ["", f"{row['name']}: {row['last_decision'] or 'no decision yet'}"]
        if row["latched"]:
            lines.append(f"  LATCHED: {row['latched']}")
        if row["paused_until"] is not None:
            lines.append(f"  paused until {stamp(row['paused_until'])}")
    return _joined(lines)


def journal_text(config: Config, target: str | None, back: float, limit: int, *, as_json: bool) -> str:
    """Decisions, oldest first."""
    with reading(config.journal) as db:
        found = journal_audit.decisions(db, target=target, since=time.time() - back, limit=limit)
    found.reverse()
    if as_json:
        return "".join(json.dumps(dataclasses.asdict(d), default=str) + "\n" for d in found)
    known = target is None or config.target(target) is not None
    return (
        _joined([_line(d) for d in found]) or f"no decisions in that time{'' if known else f', and no target {target!r}'}\n"
    )


def attempt_text(config: Config, number: int) -> str:
    """One attempt with its steps and what was captured before it."""
    with reading(config.journal) as db:
        try:
            attempt = journal_attempts.attempt_by_id(db, number)
        except LookupError as exc:
            raise AskError(f"{exc} in {config.journal}") from exc
        captured = journal_attempts.diagnostics(db, number)
    parts = [json.dumps(dataclasses.asdict(attempt), indent=2, default=str)]
    parts += [f"--- {name}\n{text}" for name, text in captured.items()]
    return "\n\n".join(parts) + "\n"


def report_text(config: Config, back: float, *, as_json: bool) -> str:
    """The last `back` seconds, target by target."""
    now = time.time()
    with reading(config.journal) as db:
        found = journal_audit.decisions(db, since=now - back, limit=1_000_000)
    result = report.summarize(found, [t.name for t in config.targets])
    if as_json:
        return json.dumps([dataclasses.asdict(r) for r in result], indent=2, default=str) + "\n"
    return report.text(result, config.mode.value, format_duration(back))


def explanation_text(found: Mapping[str, Any], *, as_json: bool) -> str:
    """Gate by gate."""
    if as_json:
        return json.dumps(found, indent=2) + "\n"
    marks = {True: "pass     ", False: "REFUSE   ", None: "not asked"}
    lines = [f"{found['target']}: {found['decision']} ({found['reason']}): {found['text']}"]
    lines += [f"  {marks[gate['passed']]}  {gate['name']}: {gate['text']}" for gate in found["gates"]]
    captured = found.get("evidence", {}).get("captured")
    if captured:
        lines.append(f"  captured: {', '.join(captured)}")
    return _joined([*lines, "nothing was restarted"])


def _budget(view: Mapping[str, Any]) -> str:
    """In the words of the gate."""
    total = view["budget_total"]
    return f"budget: {total - view['budget_remaining']} of {total} starts used"


def changed_text(action: str, name: str | None, found: Mapping[str, Any]) -> str:
    """What a change did."""
    whom = name or "all targets"
    if action == "pause":
        return f"{whom}: paused until {stamp(found['paused_until'])}"
    if action == "approve":
        return f"{whom}: approved until {stamp(found['approved_until'])}; every gate is asked again before it is done"
    return f"{whom}: {'resumed' if action == 'resume' else 're-armed'}"


def stamp(at: float) -> str:
    """A time for people."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _joined(lines: Sequence[str]) -> str:
    """What others said stays in the line where we quote it."""
    return "".join(f"{printable(line)}\n" for line in lines)


def _line(decision: DecisionView) -> str:
    outcome = f" [{decision.outcome}]" if decision.outcome else ""
    count = decision.evidence.get("count", 1)
    again = f" (x{count}, last {stamp(float(decision.evidence['last_at']))})" if count > 1 else ""
    said = f"{decision.target} {decision.decision} {decision.reason}: {decision.text}"
    return f"{stamp(decision.at)} {said}{outcome}{again}"
