"""Every gate by itself: what it refuses, with which label, and in words that a person understands at 3 a.m."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from llm_remediator.containers import Process
from llm_remediator.history import Approval, Latch, Pause, Result
from llm_remediator.outcome import Outcome, Status
from llm_remediator.policy import GATES, decide, explain
from llm_remediator.rules import Backend, Budget, FleetRules, Mode, Rules, Window
from llm_remediator.snapshot import Alert, Decision, Fact, Member, ProofFacts, Snapshot, Verb, Witness
from remediator.scenes import (
    HOUR,
    ID,
    NOW,
    SELECTOR,
    attempt,
    box,
    fleet,
    foreign,
    history,
    proof,
    proven,
    ready,
    report,
    target,
    with_box,
)

MINUTE = 60.0
APPROVED_ONLY = Rules(approve=True)
ASKED = Approval(1, box().incarnation, "restart", NOW - MINUTE, NOW - MINUTE, "restart awaits approval: stuck")
GRANTED = replace(ASKED, approved_by="kim", expires_at=NOW + 1)
CLOSED = Window(frozenset(), 0, 24 * 60)
D_STATE = Process(7, 1, "D", "nvidia_poll", 900.0, "VLLM::EngineCore")


def test_the_scene_passes_every_gate() -> None:
    decided = decide(ready())
    assert isinstance(decided, Decision)
    assert (decided.verb, decided.gate, decided.reason) == (Verb.ACT, "none", "proven")
    assert "stuck: 3 held, nothing moved for 6m" in decided.text
    assert all(r.answer.passed for r in explain(ready()))


def test_observe_only_says_what_it_would_do() -> None:
    decided = decide(ready(mode=Mode.OBSERVE))
    assert isinstance(decided, Decision)
    assert decided.verb is Verb.WOULD_ACT


def test_gates_stand_in_the_order_of_the_design() -> None:
    assert [name for name, _ in GATES] == [
        "clock", "journal", "leader", "paused", "window", "alert", "state", "container", "running", "orchestrator",
        "startup_grace", "in_flight", "latched", "cooldown", "budget", "foreign_owner", "breaker", "concurrency",
        "approval", "unkillable", "proof", "alertmanager",
    ]  # fmt: skip


REFUSALS: list[tuple[str, str, Verb, Snapshot, str]] = [
    ("clock", "clock_backwards", Verb.DEFER, ready(newest_seen=NOW + HOUR), "went back by 1h"),
    ("clock", "clock_forwards", Verb.DEFER, ready(clock_jump_until=NOW + 1), "set forward"),
    ("journal", "journal_broken", Verb.DEFER, ready(journal_fault="disk full"), "disk full"),
    ("leader", "not_leading", Verb.DEFER, ready(not_leading="b holds the lease"), "b holds the lease"),
    ("paused", "paused", Verb.SKIP, ready(pauses=(Pause(None, NOW + 60, "upgrade", "ann"),)), "everything is paused by ann"),
    ("paused", "paused", Verb.SKIP, ready(pauses=(Pause("a", NOW + 60, "", "ann"),)), "this target is paused"),
    ("window", "outside_window", Verb.DEFER, ready(target=target(Rules(windows=(CLOSED,)))), "only allowed"),
    ("alert", "no_alert", Verb.SKIP, ready(alert=None), "no alert"),
    ("alert", "alert_resolved", Verb.SKIP, ready(alert=Alert("a", "X", False, NOW, "webhook")), "X is resolved"),
    ("alert", "alert_stale", Verb.SKIP, ready(alert=Alert("a", "X", True, NOW - 301, "webhook")), "5m1s ago"),
    (
        "alert",
        "silenced",
        Verb.SKIP,
        ready(alert=Alert("a", "X", True, NOW, "am", suppressed_by=("s1",))),
        "silenced or inhibited by s1",
    ),
    ("state", "exporter_unreachable", Verb.DEFER, ready(report=None, report_fault="refused"), "no verdict: refused"),
    ("state", "unknown_to_exporter", Verb.DEFER, ready(report=None, report_unknown=True), "no verdict"),
    ("state", "maintenance", Verb.SKIP, ready(report=report(maintenance=True)), "maintenance"),
    ("state", "state_busy", Verb.SKIP, ready(report=report(state="busy", sentence="busy: 12 running")), "busy: 12 running"),
    ("state", "state_unknown", Verb.SKIP, ready(report=report(state="unknown")), "the exporter says"),
    ("state", "observation_old", Verb.DEFER, ready(report=report(last_observation=NOW - 181)), "last looked"),
    ("state", "observation_old", Verb.DEFER, ready(report=report(last_observation=None)), "never"),
    ("container", "not_inspected", Verb.DEFER, ready(members=()), "not looked at"),
    (
        "container",
        "no_match",
        Verb.SKIP,
        ready(members=(Member(SELECTOR, None, "no container matches x", "no_match"),)),
        "no container matches",
    ),
    ("container", "ambiguous", Verb.DEFER, ready(members=(Member(SELECTOR, None, "2 match", "ambiguous"),)), "2 match"),
    (
        "container",
        "unreachable",
        Verb.DEFER,
        ready(members=(Member(SELECTOR, None, "host down", "unreachable"),)),
        "host down",
    ),
    (
        "container",
        "no_match",
        Verb.SKIP,
        ready(members=(Member(SELECTOR, box()), Member(SELECTOR, None, "gone", "no_match"))),
        "gone",
    ),
    ("container", "opted_out", Verb.SKIP, with_box(labels={"stuckproof.restart": "never"}), "stuckproof.restart=never"),
    ("running", "container_paused", Verb.SKIP, with_box(paused=True, state="paused"), "a restart would undo that"),
    ("running", "container_restarting", Verb.DEFER, with_box(restarting=True, state="restarting"), "restarting already"),
    ("running", "container_removing", Verb.DEFER, with_box(state="removing"), "removing already"),
    (
        "running",
        "container_exited",
        Verb.SKIP,
        with_box(state="exited", running=False, finished_at=NOW),
        "we do not start what somebody stopped",
    ),
    ("running", "container_created", Verb.SKIP, with_box(state="created", running=False), "is created"),
    ("running", "container_dead", Verb.SKIP, with_box(state="dead", running=False), "is dead"),
    ("running", "start_unknown", Verb.DEFER, with_box(started_at=None), "when it was started"),
    ("orchestrator", "owned_by_swarm", Verb.SKIP, with_box(owner="swarm"), "managed by swarm"),
    ("orchestrator", "owned_by_kubernetes", Verb.SKIP, with_box(owner="kubernetes"), "two owners"),
    ("startup_grace", "starting_up", Verb.DEFER, with_box(started_at=NOW - 599), "left alone for 10m"),
    ("in_flight", "in_flight", Verb.DEFER, ready(history=history(attempt(NOW - HOUR, None))), "phase verifying"),
    (
        "latched",
        "latched",
        Verb.SKIP,
        ready(history=history(latch=Latch(NOW - 9, "budget", "3 of 3 used"))),
        "3 of 3 used; comes off when a person",
    ),
    (
        "latched",
        "latched",
        Verb.SKIP,
        ready(history=history(latch=Latch(NOW - 9, "budget", "x", NOW + HOUR))),
        "by itself at",
    ),
    ("cooldown", "cooldown", Verb.DEFER, ready(history=history(attempt(NOW - 599))), "1s from now"),
    ("cooldown", "cooldown", Verb.DEFER, ready(history=history(foreign_starts=(foreign(NOW - 599),))), "cooldown until"),
    (
        "budget",
        "budget",
        Verb.LATCH,
        ready(history=history(*(attempt(NOW - HOUR * n) for n in (3, 4, 5)))),
        "3 of 3 starts used",
    ),
    ("foreign_owner", "foreign_owner", Verb.SKIP, with_box(watchdog_labels=("autoheal=true",)), "autoheal=true"),
    (
        "foreign_owner",
        "foreign_owner",
        Verb.SKIP,
        ready(
            history=history(
                foreign_starts=(foreign(NOW - 8 * HOUR, state="stuck"), foreign(NOW - 7 * HOUR, state="stalled"))
            )
        ),
        "restarted it 2 times while it was stalled or stuck",
    ),
    ("breaker", "breaker_open", Verb.DEFER, ready(fleet=fleet("stuck", "unreachable", "unreachable")), "we are blind"),
    (
        "breaker",
        "storm_cooldown",
        Verb.DEFER,
        ready(fleet=fleet("stuck", "busy", breaker_last_open=NOW - 599)),
        "waiting until",
    ),
    (
        "concurrency",
        "concurrency",
        Verb.DEFER,
        ready(
            fleet=replace(
                fleet("stuck", "busy", "busy"),
                members=(fleet("stuck").members[0], replace(fleet("x", "starting").members[1], in_flight=True)),
            )
        ),
        "b being restarted; at most 1",
    ),
    (
        "concurrency",
        "fleet_budget",
        Verb.DEFER,
        ready(fleet=fleet("stuck", "busy", acts=tuple(NOW - 60 * n for n in range(1, 7)))),
        "6 restarts over all",
    ),
    (
        "approval",
        "awaiting_approval",
        Verb.AWAITING_APPROVAL,
        ready(target=target(APPROVED_ONLY)),
        "restart awaits a person's approval: stuck: 3 held",
    ),
    (
        "approval",
        "awaiting_approval",
        Verb.AWAITING_APPROVAL,
        ready(target=target(APPROVED_ONLY), history=history(approval=ASKED), proof=None),
        "restart awaits approval: stuck; asked 1m ago, no answer yet",
    ),
    (
        "unkillable",
        "unkillable",
        Verb.LATCH,
        ready(processes=((D_STATE,),) * 3),
        "VLLM::EngineCore (pid 7, waits in nvidia_poll)",
    ),
    ("unkillable", "unkillable", Verb.LATCH, ready(processes=((Process(100, 1, "Zs", "", 9.0, "vllm"),),) * 3), "zombie"),
    ("unkillable", "processes_unknown", Verb.DEFER, ready(processes_fault="403"), "403"),
    (
        "proof",
        "proof_unavailable",
        Verb.DEFER,
        ready(proof=ProofFacts(Outcome(Status.TIMED_OUT, None, "no answer in 90 s"), (box().incarnation,))),
        "no answer in 90 s",
    ),
    (
        "proof",
        "other_incarnation",
        Verb.SKIP,
        ready(proof=ProofFacts(Outcome(Status.OK, proof()), (f"{ID}@earlier",))),
        "started anew while the proof",
    ),
    ("proof", "proof_stale", Verb.DEFER, ready(proof=proven(observed_at=NOW - 31)), "31s off"),
    ("proof", "proof_stale", Verb.DEFER, ready(proof=proven(observed_at=NOW + 31)), "31s off"),
    (
        "proof",
        "not_confirmed",
        Verb.SKIP,
        ready(proof=proven(state="busy", sentence="busy: 126 tokens/s")),
        "busy: 126 tokens/s",
    ),
    ("proof", "not_confirmed", Verb.SKIP, ready(proof=proven(state="unknown")), "a fresh look says"),
    ("proof", "hardware", Verb.SKIP, ready(proof=proven(hardware="Xid 79")), "Xid 79: a restart does not mend hardware"),
    ("proof", "since_unknown", Verb.DEFER, ready(proof=proven(flat_since=None)), "since when"),
    (
        "proof",
        "flat_since_startup",
        Verb.DEFER,
        ready(proof=proven(flat_since=NOW - 2 * HOUR + 600)),
        "a start that hangs is for a person",
    ),
    ("proof", "other_process", Verb.SKIP, ready(proof=proven(process_started=NOW - 3 * HOUR)), "check url and container"),
    (
        "alertmanager",
        "alertmanager_unreachable",
        Verb.DEFER,
        ready(witnesses=(Witness("http://b", False, detail="refused"),)),
        "a silence could be there",
    ),
    (
        "alertmanager",
        "silenced",
        Verb.SKIP,
        ready(witnesses=(Witness("http://a", True, 1), Witness("http://b", True, 0, ("s9",)))),
        "silenced or inhibited at http://b by s9",
    ),
    (
        "alertmanager",
        "alert_gone",
        Verb.SKIP,
        ready(witnesses=(Witness("http://a", True, 1), Witness("http://b", True, 0))),
        "http://b has no firing alert",
    ),
    (
        "alertmanager",
        "alertmanager_unreachable",
        Verb.DEFER,
        ready(witnesses=(Witness("http://a", True, 0), Witness("http://b", False, detail="x"))),
        "http://b does not answer",
    ),
]


@pytest.mark.parametrize(
    ("gate", "reason", "verb", "snapshot", "words"), REFUSALS, ids=[f"{r[0]}-{r[1]}-{i}" for i, r in enumerate(REFUSALS)]
)
def test_a_gate_refuses_with_its_own_words(gate: str, reason: str, verb: Verb, snapshot: Snapshot, words: str) -> None:
    decided = decide(snapshot)
    assert isinstance(decided, Decision)
    assert (decided.gate, decided.reason, decided.verb) == (gate, reason, verb)
    assert words in decided.text


def test_every_gate_is_in_the_table() -> None:
    assert {row[0] for row in REFUSALS} == {name for name, _ in GATES}


PASSES: list[tuple[str, Snapshot]] = [
    ("clock stands still", ready(newest_seen=NOW)),
    ("a pause that is over", ready(pauses=(Pause(None, NOW, "", "ann"),))),
    ("alert seen just within its time", ready(alert=Alert("a", "X", True, NOW - 300, "webhook"))),
    ("grace just over", replace(with_box(started_at=NOW - 1000), proof=proven(process_started=NOW - 999))),
    ("latch whose time has come", ready(history=history(latch=Latch(NOW - 9, "budget", "x", NOW)))),
    ("cooldown just over", ready(history=history(attempt(NOW - 600)))),
    ("two of three used", ready(history=history(attempt(NOW - 5 * HOUR), attempt(NOW - 4 * HOUR)))),
    ("old ones out of the window", ready(history=history(*(attempt(NOW - HOUR * n) for n in (7, 8, 9))))),
    ("withdrawn ones count nothing", ready(history=history(*(attempt(NOW - n, Result.WITHDRAWN) for n in range(1, 9))))),
    (
        "deployments count nothing",
        ready(history=history(foreign_starts=tuple(foreign(NOW - HOUR - n, "deployment") for n in range(5)))),
    ),
    (
        "another container's starts count nothing",
        ready(history=history(foreign_starts=tuple(foreign(NOW - HOUR - n, container="cd" * 32) for n in range(5)))),
    ),
    ("one human restart while stuck", ready(history=history(foreign_starts=(foreign(NOW - HOUR, state="stuck"),)))),
    (
        "two foreign restarts while busy",
        ready(
            history=history(foreign_starts=(foreign(NOW - 8 * HOUR, state="busy"), foreign(NOW - 7 * HOUR, state="idle")))
        ),
    ),
    (
        "two policy restarts while stuck",
        ready(
            history=history(
                foreign_starts=(foreign(NOW - 8 * HOUR, "policy", "stuck"), foreign(NOW - 7 * HOUR, "policy", "stuck"))
            )
        ),
    ),
    (
        "foreign restarts of yesterday",
        ready(history=history(foreign_starts=tuple(foreign(NOW - 25 * HOUR - n, state="stuck") for n in (0, 1)))),
    ),
    (
        "re-armed: failures are forgiven",
        ready(history=history(*(attempt(NOW - HOUR * n) for n in (3, 4, 5)), rearmed_at=NOW - HOUR)),
    ),
    ("storm cooldown over", ready(fleet=fleet("stuck", "busy", breaker_last_open=NOW - 600))),
    ("two stuck, but an hour apart", ready(fleet=fleet("stuck", "stuck"))),
    ("a D state that passes", ready(processes=((D_STATE,), (D_STATE,), (replace(D_STATE, stat="S"),)))),
    ("a zombie child", ready(processes=((Process(200, 100, "Z", "", 9.0, "sh"),),) * 3)),
    ("proof of an unknown process start", ready(proof=proven(process_started=None))),
    (
        "failed counts from the exporter's since",
        ready(
            target=target(Rules(restart_on=frozenset({"failed"}))),
            report=report(state="failed"),
            proof=proven(state="failed", flat_since=None),
        ),
    ),
    ("a container that opted in", with_box(labels={"stuckproof.restart": "allowed"})),
    ("approved by a person", ready(target=target(APPROVED_ONLY), history=history(approval=GRANTED))),
    ("no Alertmanager configured", ready(alertmanagers_configured=0, witnesses=None)),
    ("two Alertmanagers agree", ready(witnesses=(Witness("http://a", True, 1), Witness("http://b", True, 1)))),
    (
        "swarm back end and swarm's own container",
        ready(target=target(backend=Backend.SWARM), members=(Member(SELECTOR, box(owner="swarm")),)),
    ),
]


@pytest.mark.parametrize("snapshot", [s for _, s in PASSES], ids=[n for n, _ in PASSES])
def test_near_misses_pass(snapshot: Snapshot) -> None:
    decided = decide(snapshot)
    assert isinstance(decided, Decision)
    assert decided.verb is Verb.ACT, decided.text


@pytest.mark.parametrize(
    ("snapshot", "fact"),
    [
        (ready(processes=None, proof=None, witnesses=None), Fact.PROCESSES),
        (ready(processes=((D_STATE,),)), Fact.PROCESSES),
        (ready(proof=None, witnesses=None), Fact.PROOF),
        (ready(witnesses=None), Fact.WITNESSES),
    ],
)
def test_costly_facts_are_asked_for_one_by_one(snapshot: Snapshot, fact: Fact) -> None:
    assert decide(snapshot) is fact


def test_nothing_costly_is_asked_while_a_cheap_gate_refuses() -> None:
    assert isinstance(decide(ready(alert=None, processes=None, proof=None, witnesses=None)), Decision)


@pytest.mark.parametrize(
    ("minutes", "failed", "refused"),
    [(10, 1, False), (19, 2, True), (20, 2, False), (39, 3, True), (40, 3, False), (119, 9, True), (120, 9, False)],
)
def test_cooldown_doubles_up_to_two_hours(minutes: float, failed: int, refused: bool) -> None:
    rules = Rules(budget=Budget(99, 6 * HOUR))
    attempts = [attempt(NOW - minutes * MINUTE - n * 20 * MINUTE) for n in range(failed)]
    decided = decide(ready(target=target(rules), history=history(*attempts)))
    assert isinstance(decided, Decision)
    assert (decided.gate == "cooldown") is refused, decided.text


def test_a_success_is_forgotten_only_after_min_healthy() -> None:
    rules = Rules(budget=Budget(99, 6 * HOUR))
    short = history(attempt(NOW - 61 * MINUTE, Result.VERIFIED), attempt(NOW - 15 * MINUTE, Result.VERIFIED))
    long = history(attempt(NOW - 90 * MINUTE, Result.RECOVERED), attempt(NOW - 15 * MINUTE, Result.VERIFIED))
    assert decide(ready(target=target(rules), history=short)).gate == "cooldown"  # type: ignore[union-attr]
    assert decide(ready(target=target(rules), history=long)).gate == "none"  # type: ignore[union-attr]


FLEETS: list[tuple[tuple[str, ...], float, bool]] = [
    (("stuck",), 0.0, False),
    (("stuck", "stuck"), 0.0, True),
    (("stuck", "stuck"), 61.0, False),
    (("stuck", "busy"), 0.0, False),
    (("stuck", "unreachable"), 61.0, False),
    (("stuck", "unreachable"), 0.0, True),
    (("stuck", "unreachable", "unreachable"), 61.0, True),
    (("stuck", "stalled", "down", "failed"), 20.0, True),
    (("stuck", "stalled", "down", "busy"), 0.0, False),
    (("stuck", *["busy"] * 4), 0.0, False),
    (("stuck", "stuck", *["busy"] * 3), 0.0, True),
    (("stuck", "stuck", *["busy"] * 8), 0.0, False),
    (("stuck", "stuck", "down", *["busy"] * 7), 0.0, True),
]


@pytest.mark.parametrize(("states", "apart", "opens"), FLEETS)
def test_the_breaker_knows_small_fleets_from_large_ones(states: tuple[str, ...], apart: float, opens: bool) -> None:
    members = tuple(replace(m, since=NOW - 300 - apart * i) for i, m in enumerate(fleet(*states).members))
    decided = decide(ready(fleet=replace(fleet(), members=members), fleet_rules=FleetRules(max_concurrent=9)))
    assert isinstance(decided, Decision)
    assert (decided.reason == "breaker_open") is opens, decided.text


def test_those_being_restarted_count_as_ill() -> None:
    members = fleet("stuck", "stuck", *["busy"] * 8).members
    being = tuple(replace(m, in_flight=i == 5) for i, m in enumerate(members))
    decided = decide(ready(fleet=replace(fleet(), members=being), fleet_rules=FleetRules(max_concurrent=9)))
    assert isinstance(decided, Decision)
    assert decided.reason == "breaker_open"


def test_a_small_fleet_restarts_one_at_a_time_whatever_is_configured() -> None:
    members = tuple(replace(m, in_flight=i == 1) for i, m in enumerate(fleet("stuck", "starting", "busy").members))
    decided = decide(ready(fleet=replace(fleet(), members=members), fleet_rules=FleetRules(max_concurrent=3)))
    assert isinstance(decided, Decision)
    assert decided.reason == "concurrency"


def test_explain_answers_every_gate_even_after_a_refusal() -> None:
    results = explain(ready(alert=None, proof=None, processes=None, witnesses=None))
    assert [r.gate for r in results] == [name for name, _ in GATES]
    assert {r.gate: r.answer.passed for r in results}["alert"] is False
    assert {r.gate: r.answer.passed for r in results}["proof"] is None
    assert all(r.answer.text for r in results)


@pytest.mark.parametrize(
    "members",
    [
        (),
        (Member(SELECTOR, None, "no such container", "no_match"),),
        (*ready().members, Member(SELECTOR, None, "", "no_match")),
    ],
    ids=["not looked at", "none found", "one of two found"],
)
def test_gates_that_look_at_containers_do_not_pass_without_them(members: tuple[Member, ...]) -> None:
    snapshot = ready(members=members)
    answers = {r.gate: r.answer for r in explain(snapshot)}
    assert answers["container"].passed is False
    for gate in ("running", "orchestrator", "startup_grace", "foreign_owner"):
        assert answers[gate].passed is None, gate
        assert answers[gate].text == "its containers were not all found"
    decided = decide(snapshot)
    assert isinstance(decided, Decision)
    assert decided.gate == "container"


def test_another_watchdog_is_named_even_where_no_container_is_found() -> None:
    seen = history(foreign_starts=(foreign(NOW - HOUR, state="stuck"), foreign(NOW - 2 * HOUR, state="stuck")))
    answers = {r.gate: r.answer for r in explain(ready(members=(), history=seen))}
    assert answers["foreign_owner"].passed is False


UTC_NIGHT = Window(frozenset({4}), 22 * 60, 6 * 60)
"""Friday 22:00 to Saturday 06:00."""


@pytest.mark.parametrize(
    ("window", "moment", "open_"),
    [
        (UTC_NIGHT, "2026-11-27 21:59", False),
        (UTC_NIGHT, "2026-11-27 22:00", True),
        (UTC_NIGHT, "2026-11-28 05:59", True),
        (UTC_NIGHT, "2026-11-28 06:00", False),
        (UTC_NIGHT, "2026-11-28 23:00", False),
        (Window(frozenset({0}), 8 * 60, 18 * 60), "2026-11-30 08:00", True),
        (Window(frozenset({0}), 8 * 60, 18 * 60), "2026-11-30 18:00", False),
        (Window(frozenset({0}), 8 * 60, 18 * 60), "2026-12-01 09:00", False),
        (Window(frozenset({0}), 8 * 60, 18 * 60, "Europe/Berlin"), "2026-11-30 07:30", True),
        (Window(frozenset({0}), 8 * 60, 18 * 60, "Europe/Berlin"), "2026-11-30 17:30", False),
        (Window(frozenset(range(7)), 0, 24 * 60), "2026-11-30 12:00", True),
    ],
)
def test_time_windows(window: Window, moment: str, open_: bool) -> None:
    """All moments are UTC; a window over midnight belongs to the day on which it begins."""
    now = datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp()
    snapshot = replace(ready(target=target(Rules(windows=(window,)))), now=now)
    assert dict(GATES)["window"](snapshot).passed is open_
