"""The values that rules, dashboards and runbooks match on are values that the programs really use."""

from __future__ import annotations

import re
from collections.abc import Iterator

import promql_parser
import pytest

from llm_exporter.judge import State
from llm_remediator.history import Result
from llm_remediator.policy import GATES
from llm_remediator.rules import Mode
from llm_remediator.snapshot import Verb
from rules.promql import selectors
from rules.scenes import STATES, alert_rules
from rules.test_dashboards import PANELS, concrete
from rules.test_lint import RECORDING, template_queries
from rules.test_runbooks import PAGES

ALERTS = alert_rules()
STATE_NAMES = {state.value for state in State}
GATE_NAMES = {name for name, _ in GATES} | {"none"}
VALUES = {
    "llm_health_state": STATE_NAMES,
    "outcome": {result.value for result in Result},
    "decision": {verb.value for verb in Verb},
    "mode": {mode.value for mode in Mode},
    "gate": GATE_NAMES,
    "within": {"1", "10", "+Inf"},
    "state": {"running", "waiting"},
    "kind": {"prompt", "generation"},
}


def expressions() -> Iterator[tuple[str, str]]:
    for alert, rule in ALERTS.items():
        yield alert, rule["expr"]
        for text in rule["annotations"].values():
            for query in template_queries(text):
                yield alert, query
    yield from RECORDING.items()
    for board, panel in PANELS:
        for target in panel["targets"]:
            yield f"{board}: {panel['title']}", concrete(target["expr"], "a")


def unknown_values(expr: str) -> list[str]:
    """Matched values that no program of ours ever gives that label."""
    found = []
    for selector in selectors(promql_parser.parse(expr)):
        for matcher in selector.matchers.matchers:
            allowed = VALUES.get(matcher.name)
            if allowed is not None and matcher.value:
                found += [f"{matcher.name}={v}" for v in matcher.value.split("|") if v not in allowed]
    return found


@pytest.mark.parametrize("where, expr", list(expressions()))
def test_every_matched_value_exists(where: str, expr: str) -> None:
    assert unknown_values(expr) == [], where


def test_an_unknown_value_is_noticed() -> None:
    assert unknown_values('llm_health_state{target!="",llm_health_state=~"stuck|hung"}') == ["llm_health_state=hung"]


def test_the_scenes_use_all_states() -> None:
    assert set(STATES) == STATE_NAMES


@pytest.mark.parametrize("alert", PAGES)
def test_a_runbook_names_gates_states_and_outcomes_that_exist(alert: str) -> None:
    text = PAGES[alert]
    for listed in re.findall(r"[Gg]ates? ((?:`\w+`(?:, | or )?)+)", text):
        assert set(re.findall(r"`(\w+)`", listed)) <= GATE_NAMES
    for listed in re.findall(r"outcome ((?:`\w+`(?:, | or )?)+)", text):
        assert set(re.findall(r"`(\w+)`", listed)) <= VALUES["outcome"]
