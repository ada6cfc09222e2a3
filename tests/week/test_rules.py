"""The rules in scenes that have one right answer, and a day of ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from benchmarks.week.play import RULES, Total, play
from benchmarks.week.report import table
from benchmarks.week.rules.promql import increase
from benchmarks.week.rules.stuckproof import TOLD_AFTER
from benchmarks.week.schedule import HOUR, MINUTE, Arrival, Event, Hang, Happening, Schedule, draw
from benchmarks.week.score import Score
from benchmarks.week.servers import SERVERS, Server
from benchmarks.week.stalls import restarted

from llm_common.config import parse_duration
from llm_exporter.judge import State

RULES_DIRECTORY = Path(__file__).parents[2] / "rules"
OURS = "Stuckproof"
ALL = list(RULES)
OTHERS = [name for name in ALL if name != OURS]
BOX = Server("box", "0.32.0", slots=4, prefill_rate=500.0, decode_rate=20.0, load_seconds=(60.0, 60.0))
STRIKE = 2 * HOUR


def week(
    *happenings: Happening,
    arrivals: tuple[Arrival, ...] = (),
    jobs: tuple[tuple[float, float, int], ...] = (),
    server: Server = BOX,
) -> Schedule:
    return Schedule(server, 8 * HOUR, arrivals, happenings, (), jobs)


def scored(rule: str, schedule: Schedule) -> Score:
    return play(RULES[rule], schedule, seed=1)


def chat(every: float = 60.0, tokens: int = 200) -> tuple[Arrival, ...]:
    return tuple(Arrival(at * every + 7.0, 300, tokens, 300.0) for at in range(int(8 * HOUR / every)))


def test_the_story_a_batch_job_gets_a_healthy_server_restarted_again_and_again_and_ours_does_nothing() -> None:
    story = week(jobs=((HOUR, 7 * HOUR, 8),))
    watchdog, ours = scored("request watchdog", story), scored(OURS, story)
    assert watchdog.false_restarts >= 8
    assert watchdog.lost_requests >= 4 * watchdog.false_restarts
    assert (ours.false_restarts, ours.false_pages) == (0, 0)


def test_a_long_prefill_is_restarted_by_the_step_counter_and_not_by_ours() -> None:
    long = week(arrivals=(Arrival(HOUR, 150_000, 100, HOUR),))
    assert scored("step counter, 120 s", long).false_restarts >= 1
    assert scored("rate() == 0", long).false_restarts >= 1
    assert scored(OURS, long).false_restarts == 0


def test_people_are_told_when_the_shipped_rules_and_routes_tell_them() -> None:
    alerts = {
        rule["alert"]: rule
        for group in yaml.safe_load((RULES_DIRECTORY / "alerts.yml").read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    routes = yaml.safe_load((RULES_DIRECTORY / "alertmanager.yml").read_text())["route"]["routes"]

    def seconds(alert: str) -> float:
        rule = alerts[alert]
        severity = f'severity="{rule["labels"]["severity"]}"'
        (route,) = (route for route in routes if route["matchers"] == [severity])
        assert "[1m]" in rule["expr"] or ">= 600" in rule["expr"]
        held = 600.0 if ">= 600" in rule["expr"] else 0.0
        return held + parse_duration(rule["for"]) + parse_duration(route["group_wait"])

    assert {
        State.STUCK: seconds("LLMEngineStuckUnattended"),
        State.STARVED: seconds("LLMEngineStarved"),
        State.FAILED: seconds("LLMEngineFailed"),
        State.UNREACHABLE: seconds("LLMTargetUnreachable"),
        State.UNKNOWN: seconds("LLMTargetUnknown"),
    } == TOLD_AFTER


@pytest.mark.parametrize(
    ("rule", "longest"), [("Kubernetes liveness", 10 + 2 * 10 + 1), ("docker-autoheal", 30 + 2 * (30 + 30) + 30 + 5)]
)
def test_the_kubelet_keeps_its_period_and_docker_waits_for_the_last_check(rule: str, longest: float) -> None:
    (hang,) = scored(rule, week(Happening(STRIKE + 1, Hang.API), arrivals=chat())).hangs
    assert hang.restarted is not None
    assert longest - 10 <= hang.restarted - hang.began <= longest


def test_a_slow_health_endpoint_is_restarted_by_the_liveness_probe_only() -> None:
    stall = week(Happening(STRIKE, Event.LOOP_STALL, 40.0), arrivals=chat())
    assert {name: scored(name, stall).false_restarts for name in ALL} == {
        name: int(name == "Kubernetes liveness") for name in ALL
    }


def test_gauges_that_stay_up_after_an_abort_are_not_taken_for_a_hang_by_ours() -> None:
    old = replace(BOX, version="0.10.1", stale_gauges=True)
    aborted = week(Happening(STRIKE, Event.MASS_ABORT), arrivals=(Arrival(STRIKE - 30, 300, 4000, HOUR),), server=old)
    assert scored("step counter, 120 s", aborted).false_restarts >= 1
    assert scored("rate() == 0, for 5m", aborted).false_restarts >= 1
    ours = scored(OURS, aborted)
    assert (ours.false_restarts, ours.false_pages) == (0, 0)


@pytest.mark.parametrize(
    ("rule", "within"),
    [
        (OURS, 6.5 * MINUTE),
        ("request watchdog", 27 * MINUTE),
        ("step counter, 120 s", 2.5 * MINUTE),
        ("rate() == 0", 5.5 * MINUTE),
        ("rate() == 0, for 5m", 10.5 * MINUTE),
        ("Kubernetes liveness", None),
        ("docker-autoheal", None),
    ],
)
def test_a_step_that_hangs_while_busy(rule: str, within: float | None) -> None:
    hung = week(Happening(STRIKE, Hang.BUSY_STEP), arrivals=(*chat(), Arrival(STRIKE - 60, 300, 4000, HOUR)))
    score = scored(rule, hung)
    (hang,) = score.hangs
    if within is None:
        assert hang.missed
    else:
        assert hang.restarted is not None
        assert hang.restarted - hang.began < within
    assert score.false_restarts == 0


def test_a_single_hung_request_is_restarted_at_the_bound_not_at_twice() -> None:
    (hang,) = scored(OURS, week(Happening(STRIKE, Hang.BUSY_STEP), arrivals=(Arrival(STRIKE - 60, 300, 4000, HOUR),))).hangs
    assert hang.restarted is not None
    assert hang.restarted - hang.began < 6.5 * MINUTE


@pytest.mark.parametrize("rule", OTHERS)
def test_only_requests_find_an_engine_that_hangs_at_its_first_step(rule: str) -> None:
    (hang,) = scored(rule, week(Happening(STRIKE, Hang.FIRST_STEP), arrivals=chat())).hangs
    assert hang.missed is (rule != "request watchdog")


def test_ours_finds_it_by_idle_canaries() -> None:
    (hang,) = scored(OURS, week(Happening(STRIKE, Hang.FIRST_STEP), arrivals=chat())).hangs
    assert hang.restarted is not None
    assert hang.restarted - hang.began < 23 * MINUTE


def test_a_first_step_that_compiles_behind_0_0_is_no_hang() -> None:
    """A compile begins with our own idle canary, every one that is sent; 200 s of silence restart nothing."""
    compiles = week(*(Happening(at * HOUR, Event.FIRST_COMPILE, 200.0) for at in range(1, 7)))
    score = scored(OURS, compiles)
    assert (score.false_restarts, score.false_pages) == (0, 0)


def test_a_dead_decode_reaches_a_person_even_where_clients_give_up() -> None:
    (hang,) = scored(OURS, week(Happening(STRIKE, Hang.DEAD_DECODE), arrivals=chat(every=400.0, tokens=800))).hangs
    assert hang.paged is not None or hang.restarted is not None


def test_a_wedged_api_process_is_the_probes_case_and_reaches_a_person_by_ours() -> None:
    wedged = week(Happening(STRIKE, Hang.API), arrivals=chat())
    assert scored("Kubernetes liveness", wedged).hangs[0].restarted is not None
    (hang,) = scored(OURS, wedged).hangs
    assert hang.restarted is None
    assert hang.paged is not None
    assert hang.paged - hang.began < 7 * MINUTE


@pytest.mark.parametrize("name", ALL)
def test_nothing_is_restarted_in_a_quiet_week_with_a_redeployment(name: str) -> None:
    quiet = week(Happening(3 * HOUR, Event.REDEPLOY), arrivals=tuple(a for a in chat(600.0) if a.at > 3.5 * HOUR))
    score = scored(name, quiet)
    assert score.false_restarts == (0 if name != "rate() == 0" else score.false_restarts)


def test_rate_adds_what_came_after_a_counter_reset() -> None:
    assert increase([5, 5, 5]) == 0
    assert increase([5, 9, 2, 4]) == 4 + 2 + 2


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.name)
def test_a_day_with_every_hang_has_no_false_restart_and_no_missed_hang_of_ours(server: Server) -> None:
    found = play(RULES[OURS], draw(server, seed=1, days=1.0), seed=1)
    assert (found.false_restarts, found.false_reasons, found.false_pages) == (0, [], 0)
    assert {hang.kind for hang in found.hangs} == set(Hang)
    assert [hang for hang in found.hangs if hang.missed] == []


def test_the_table_has_a_row_for_every_rule() -> None:
    totals = [Total(rule, (Score(),)) for rule in RULES]
    assert len(table(totals).splitlines()) == len(RULES) + 2
    assert "never" in table(totals)


@pytest.mark.parametrize(
    ("rule", "borne", "not_borne"), [(OURS, 5, 6), ("step counter, 120 s", 2, 3), ("rate() == 0, for 5m", 8, 10)]
)
def test_how_long_a_healthy_engine_may_stand_still(rule: str, borne: int, not_borne: int) -> None:
    assert not restarted(rule, borne)
    assert restarted(rule, not_borne)
