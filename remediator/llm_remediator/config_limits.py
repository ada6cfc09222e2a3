"""Reads the limits of a remediator.yml: rules of targets, of the fleet, of diagnostics."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from llm_common.config import Reader, format_duration
from llm_remediator.rules import DAYS, RESTART, Budget, FleetRules, Rules, Window
from llm_remediator.settings import Diagnostics

STATES = (
    "starting", "idle", "busy", "stalled", "stuck", "starved", "sleeping",
    "failed", "unreachable", "down", "unknown",
)  # fmt: skip
RESTARTABLE = ("stuck", "starved", "failed", "down")


def read_rules(reader: Reader, base: Rules, commands: Collection[str] = ()) -> Rules:
    """The rules of `defaults` or of a target, over a base. `commands`: names of the fixed ones, for `remedies`."""
    restart_on = reader.strings("restart_on", sorted(base.restart_on))
    for state in restart_on:
        if state not in RESTARTABLE:
            known = "is no reason for a restart" if state in STATES else "is not a state"
            reader.problem("restart_on", f"{state} {known}; choose from {', '.join(RESTARTABLE)}")
    if not restart_on:
        reader.problem("restart_on", "is empty: nothing would ever be restarted; leave the target out instead")
    rules = Rules(
        restart_on=frozenset(restart_on),
        cooldown=reader.duration("cooldown", base.cooldown, low=1.0),
        cooldown_max=reader.duration("cooldown_max", base.cooldown_max, low=1.0),
        budget=_budget(reader.mapping("budget"), base.budget),
        startup_grace=reader.duration("startup_grace", base.startup_grace),
        stop_timeout=reader.duration("stop_timeout", base.stop_timeout, low=1.0),
        verify_within=reader.duration("verify_within", base.verify_within, low=1.0),
        min_healthy=reader.duration("min_healthy", base.min_healthy),
        rearm_after=reader.duration("rearm_after", base.rearm_after),
        windows=_windows(reader, base.windows),
        approve=reader.flag("approve", base.approve),
        approval_expires=reader.duration("approval_expires", base.approval_expires, low=60.0),
        remedies=_remedies(reader, base.remedies, commands),
    )
    if len(rules.remedies) > rules.budget.restarts:
        key = "remedies" if reader.has("remedies") or not reader.has("budget") else "budget.restarts"
        more = f"{len(rules.remedies)} remedies, but budget.restarts is {rules.budget.restarts}"
        reader.problem(key, f"{more}: the last would never be tried")
    if rules.cooldown_max < rules.cooldown:
        if reader.has("cooldown_max"):
            reader.problem("cooldown_max", f"is below cooldown ({format_duration(rules.cooldown)})")
        rules = replace(rules, cooldown_max=rules.cooldown)
    if rules.stop_timeout > 3600:
        reader.problem("stop_timeout", "is over an hour; a stuck engine never ends sooner than this")
    return rules


def _remedies(reader: Reader, base: tuple[str, ...], commands: Collection[str]) -> tuple[str, ...]:
    found = tuple(reader.strings("remedies", base))
    if not found:
        reader.problem("remedies", "is empty: nothing would ever be tried; leave it out for [restart]")
        return (RESTART,)
    for name in found:
        if name != RESTART and name not in commands:
            known = ", ".join((RESTART, *commands))
            reader.problem("remedies", f"{name} is neither restart nor one of commands; choose from {known}")
    return found


def _windows(reader: Reader, base: tuple[Window, ...]) -> tuple[Window, ...]:
    if not reader.has("windows"):
        return base
    found = []
    for at in reader.items("windows"):
        days = at.strings("days", DAYS)
        if not days:
            at.problem("days", "is empty: it would never be open; leave it out for every day")
        for day in days:
            if day not in DAYS:
                at.problem("days", f"{day!r} is not one of {', '.join(DAYS)}")
        zone = at.text("timezone", "UTC")
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError):
            at.problem("timezone", f"{zone!r} is not known on this machine; write it as Europe/Berlin, or install tzdata")
            zone = "UTC"
        begin, end = _minute(at, "from"), _minute(at, "to")
        known = frozenset(DAYS.index(day) for day in days if day in DAYS)
        found.append(Window(known, begin, end, zone))
        at.done()
    return tuple(found)


def _minute(reader: Reader, key: str) -> int:
    text = reader.text(key)
    match = re.fullmatch(r"([01]?[0-9]|2[0-4]):([0-5][0-9])", text)
    if match is None or int(match[1]) * 60 + int(match[2]) > 24 * 60:
        if text:
            reader.problem(key, f'{text!r} is not a time of day such as "08:00"; YAML needs the quotes')
        return 0
    return int(match[1]) * 60 + int(match[2])


def _budget(reader: Reader, base: Budget) -> Budget:
    budget = Budget(reader.integer("restarts", base.restarts, low=1), reader.duration("per", base.per, low=1.0))
    reader.done()
    return budget


def read_fleet(reader: Reader) -> FleetRules:
    """`fleet`."""
    base = FleetRules()
    rules = FleetRules(
        max_concurrent=reader.integer("max_concurrent", base.max_concurrent, low=1),
        max_unhealthy=_share(reader, "max_unhealthy", base.max_unhealthy),
        budget=_budget(reader.mapping("budget"), base.budget),
        storm_cooldown=reader.duration("storm_cooldown", base.storm_cooldown),
    )
    reader.done()
    return rules


def _share(reader: Reader, key: str, default: float) -> float:
    if not reader.has(key):
        return default
    raw = str(reader.raw(key)).strip()
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*%", raw)
    if match is None or not 0 < float(match[1]) <= 100:
        reader.problem(key, f"{raw!r} is not a share such as 20%")
        return default
    return float(match[1]) / 100


def read_diagnostics(reader: Reader) -> Diagnostics:
    """`diagnostics`."""
    base = Diagnostics()
    result = Diagnostics(
        timeout=reader.duration("timeout", base.timeout, low=0.1),
        log_lines=reader.integer("log_lines", base.log_lines, low=0, high=10000),
        command=tuple(reader.strings("command", [])),
    )
    reader.done()
    return result
