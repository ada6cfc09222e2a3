"""Gates on what we are, what is asked, and what stands there: before any limit is counted."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from llm_remediator.containers import ALLOWED, RESTART_LABEL
from llm_remediator.policy.words import clock as moment
from llm_remediator.policy.words import passed, refused, span, unasked
from llm_remediator.rules import Backend
from llm_remediator.snapshot import Answer, Snapshot, Verb

OBSERVED_WITHIN = 180.0
"""Seconds; the exporter says `unknown` itself after three of its intervals, which may be as long as a minute."""


def clock(snapshot: Snapshot) -> Answer:
    """Waiting times count from stored wall times, so a clock that jumped would end them early or never."""
    if snapshot.now < snapshot.newest_seen:
        return refused(
            Verb.DEFER,
            "clock_backwards",
            f"the clock went back by {span(snapshot.newest_seen - snapshot.now)}: it is "
            f"{moment(snapshot.now)}, but the journal has entries of {moment(snapshot.newest_seen)}; "
            "waiting until then, or until a person re-arms the target",
        )
    if snapshot.now < snapshot.clock_jump_until:
        return refused(
            Verb.DEFER,
            "clock_forwards",
            f"the clock was set forward; cooldowns and budgets are not trusted before {moment(snapshot.clock_jump_until)}",
        )
    return passed("the clock runs forward")


def journal(snapshot: Snapshot) -> Answer:
    """What cannot be written down must not be done, and what cannot be read is not 'nothing happened'."""
    if snapshot.journal_fault:
        return refused(Verb.DEFER, "journal_broken", f"nothing is restarted: {snapshot.journal_fault}")
    return passed("the journal can be written")


def leader(snapshot: Snapshot) -> Answer:
    """Two remediators on one cluster: only the one that holds the lease acts."""
    if snapshot.not_leading:
        return refused(Verb.DEFER, "not_leading", snapshot.not_leading)
    return passed("no other remediator acts for these targets")


def paused(snapshot: Snapshot) -> Answer:
    """A person asked for quiet."""
    active = [p for p in snapshot.pauses if p.until > snapshot.now]
    if not active:
        return passed("not paused")
    longest = max(active, key=lambda p: p.until)
    scope = "this target" if longest.target else "everything"
    return refused(
        Verb.SKIP,
        "paused",
        f"{scope} is paused by {longest.by} until {moment(longest.until)}: {longest.reason or 'no reason given'}",
    )


def window(snapshot: Snapshot) -> Answer:
    """Hours in which a restart is wanted, as the file says; outside of them people are paged all the same."""
    windows = snapshot.target.rules.windows
    if not windows:
        return passed("restarts are allowed at any time")
    if any(w.holds(datetime.fromtimestamp(snapshot.now, ZoneInfo(w.zone))) for w in windows):
        return passed("within its time windows")
    return refused(Verb.DEFER, "outside_window", f"restarts are only allowed {' or '.join(str(w) for w in windows)}")


def alert(snapshot: Snapshot) -> Answer:
    """Somebody must ask for it, lately, and by that alert's own status."""
    found = snapshot.alert
    if found is None:
        return refused(Verb.SKIP, "no_alert", "no alert with remediate=restart fires for this target")
    if not found.firing:
        return refused(Verb.SKIP, "alert_resolved", f"{found.name or 'the alert'} is resolved")
    age = snapshot.now - found.seen_at
    if age > snapshot.alert_ttl:
        return refused(
            Verb.SKIP,
            "alert_stale",
            f"{found.name or 'the alert'} was last seen firing {span(age)} ago; older than "
            f"{span(snapshot.alert_ttl)} says nothing about now",
        )
    if found.suppressed_by:
        return refused(
            Verb.SKIP,
            "silenced",
            f"{found.name or 'the alert'} is silenced or inhibited by {', '.join(found.suppressed_by)}",
        )
    return passed(f"{found.name or 'the alert'} fires, seen {span(age)} ago by {found.source}")


def state(snapshot: Snapshot) -> Answer:
    """The exporter's running verdict; the alert may be older than it."""
    report = snapshot.report
    if report is None:
        reason = snapshot.report_fault or "the exporter was not asked yet"
        label = "unknown_to_exporter" if snapshot.report_unknown else "exporter_unreachable"
        return refused(Verb.DEFER, label, f"no verdict: {reason}")
    if report.maintenance:
        return refused(Verb.SKIP, "maintenance", "the exporter has this target in maintenance")
    if report.state not in snapshot.target.rules.restart_on:
        return refused(Verb.SKIP, f"state_{report.state}", f"the exporter says {report.sentence or report.state}")
    if report.last_observation is None or snapshot.now - report.last_observation > OBSERVED_WITHIN:
        when = moment(report.last_observation) if report.last_observation is not None else "never"
        return refused(Verb.DEFER, "observation_old", f"the exporter last looked {when}; that proves nothing now")
    return passed(f"the exporter says {report.sentence or report.state}")


def container(snapshot: Snapshot) -> Answer:
    """Exactly one container for each configured one, none of which opted out, or hands off."""
    if not snapshot.members:
        return refused(Verb.DEFER, "not_inspected", "the container was not looked at yet")
    for member in snapshot.members:
        if member.container is None:
            verb = Verb.SKIP if member.reason == "no_match" else Verb.DEFER
            return refused(verb, member.reason or "unreachable", member.fault or f"{member.selector}: not found")
    for box in snapshot.containers:
        said = box.labels.get(RESTART_LABEL, ALLOWED)
        if said != ALLOWED:
            why = f"{box.name} has the label {RESTART_LABEL}={said}; only {ALLOWED} lets it be restarted"
            return refused(Verb.SKIP, "opted_out", why)
    names = ", ".join(f"{c.name} ({c.id[:12]})" for c in snapshot.containers)
    return passed(f"exactly one match: {names}")


def unresolved(snapshot: Snapshot) -> Answer | None:
    """The answer of gates that look at containers, where some were not found; else None."""
    found = bool(snapshot.members) and all(m.container is not None for m in snapshot.members)
    return None if found else unasked("its containers were not all found")


def running(snapshot: Snapshot) -> Answer:
    """Docker's restart would also unpause, and start what a person stopped: so look first."""
    if answer := unresolved(snapshot):
        return answer
    for box in snapshot.containers:
        if box.paused:
            return refused(Verb.SKIP, "container_paused", f"{box.name} is paused; a restart would undo that")
        if box.restarting or box.state in ("restarting", "removing"):
            return refused(Verb.DEFER, f"container_{box.state}", f"{box.name} is {box.state} already")
        if not box.running or box.state != "running":
            ended = f", ended {moment(box.finished_at)}" if box.finished_at is not None else ""
            why = f" ({box.error})" if box.error else ""
            return refused(
                Verb.SKIP,
                f"container_{box.state}",
                f"{box.name} is {box.state}{ended}{why}; we do not start what somebody stopped",
            )
        if box.started_at is None and snapshot.target.backend is not Backend.COMMAND:
            return refused(Verb.DEFER, "start_unknown", f"{box.name} does not tell when it was started")
    return passed("running")


def orchestrator(snapshot: Snapshot) -> Answer:
    """Somebody else's container: Swarm, Kubernetes or systemd restarts it by rules of their own."""
    if answer := unresolved(snapshot):
        return answer
    for box in snapshot.containers:
        if snapshot.target.backend is Backend.KUBERNETES:
            continue  # there the orchestrator is what we ask
        if box.owner is not None and not (snapshot.target.backend is Backend.SWARM and box.owner == "swarm"):
            return refused(
                Verb.SKIP,
                f"owned_by_{box.owner.replace('-', '_')}",
                f"{box.name} is managed by {box.owner}; two owners make a restart storm",
            )
    return passed("no orchestrator owns it")


def startup_grace(snapshot: Snapshot) -> Answer:
    """Counted from the container's own start, so that neither our restart nor a person's shortens it."""
    if answer := unresolved(snapshot):
        return answer
    started = incarnation_start(snapshot)
    grace = snapshot.target.rules.startup_grace
    if started is None:
        return passed("start not known to this back end; the exporter's own grace applies")
    age = snapshot.now - started
    if age < grace:
        return refused(
            Verb.DEFER,
            "starting_up",
            f"started {span(age)} ago ({moment(started)}); left alone for {span(grace)} after a start",
        )
    return passed(f"started {span(age)} ago")


def incarnation_start(snapshot: Snapshot) -> float | None:
    """The containers' newest start; for a command, the process start that the exporter sees."""
    if snapshot.started_at is not None:
        return snapshot.started_at
    return snapshot.report.process_started if snapshot.report is not None else None
