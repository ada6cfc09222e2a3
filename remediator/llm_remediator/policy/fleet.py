"""Gates over all targets: when many are ill at once the cause is shared, and restarts add to it."""

from __future__ import annotations

from llm_remediator.policy.words import clock, passed, refused, span
from llm_remediator.rules import FleetRules
from llm_remediator.snapshot import Answer, FleetFacts, Snapshot, Verb

SMALL = 4
"""Up to this many targets a percentage means nothing."""
SAME_MINUTE = 60.0
UNHEALTHY = frozenset({"stalled", "stuck", "starved", "failed", "unreachable", "down"})


def breaker(fleet: FleetFacts, rules: FleetRules) -> str:
    """Why nothing may be restarted anywhere, or the empty string.

    Small fleets: all (two or more) fell ill within one minute. Larger ones: more than `max_unhealthy` are
    ill or being restarted. Both: over half are unreachable, then it is we who are blind.
    """
    members = fleet.members
    count = len(members)
    if count < 2:
        return ""
    lost = sum(m.state == "unreachable" for m in members)
    if lost * 2 > count:
        return f"{lost} of {count} targets are unreachable: we are blind, or the network is"
    ill = [m for m in members if m.state in UNHEALTHY]
    if count <= SMALL:
        since = [m.since for m in ill if m.since is not None]
        if len(since) == count and max(since) - min(since) <= SAME_MINUTE:
            return f"all {count} targets fell ill within one minute ({clock(max(since))}): a shared cause"
        return ""
    bad = sum(m.state in UNHEALTHY or m.in_flight for m in members)
    limit = max(1, int(rules.max_unhealthy * count))
    if bad > limit:
        return f"{bad} of {count} targets are ill or being restarted, more than {limit} ({rules.max_unhealthy:.0%})"
    return ""


def breaker_closed(snapshot: Snapshot) -> Answer:
    """Closed, and closed for long enough: states come back late when a shared cause ends."""
    why = breaker(snapshot.fleet, snapshot.fleet_rules)
    if why:
        return refused(Verb.DEFER, "breaker_open", f"the fleet breaker is open: {why}")
    last = snapshot.fleet.breaker_last_open
    if last is not None and snapshot.now < last + snapshot.fleet_rules.storm_cooldown:
        until = last + snapshot.fleet_rules.storm_cooldown
        return refused(
            Verb.DEFER, "storm_cooldown", f"the fleet breaker closed at {clock(last)}; waiting until {clock(until)}"
        )
    return passed("the fleet breaker is closed")


def concurrency(snapshot: Snapshot) -> Answer:
    """Few restarts at a time, and few in an hour."""
    fleet, rules = snapshot.fleet, snapshot.fleet_rules
    others = sorted(m.name for m in fleet.members if m.in_flight and m.name != snapshot.target.name)
    limit = 1 if len(fleet.members) <= SMALL else rules.max_concurrent
    if len(others) >= limit:
        return refused(Verb.DEFER, "concurrency", f"{', '.join(others)} being restarted; at most {limit} at a time")
    recent = [t for t in fleet.acts if t >= snapshot.now - rules.budget.per]
    if len(recent) >= rules.budget.restarts:
        return refused(
            Verb.DEFER,
            "fleet_budget",
            f"{len(recent)} restarts over all targets in the last {span(rules.budget.per)}, the most allowed",
        )
    return passed(f"{len(others)} of {limit} restarts under way")
