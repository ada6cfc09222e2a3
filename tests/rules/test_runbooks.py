"""Runbooks: one per alert and none without, in one form, with sound queries."""

from __future__ import annotations

import re

import pytest

from rules.exported import exported
from rules.promql import lint
from rules.scenes import RULES, alert_rules

HERE = RULES.parent / "docs" / "runbooks"
PAGES = {p.stem: p.read_text() for p in sorted(HERE.glob("*.md")) if p.name != "README.md"}
ALERTS = alert_rules()
METRICS = exported()
SECTIONS = ["## First", "## Look-alikes", "## Commands", "## When a restart does not help"]


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert set(PAGES) == set(ALERTS)


def test_the_index_lists_them_under_their_severity() -> None:
    titles = {"Wakes a person": "critical", "Makes a ticket": "warning", "Shown only": "info"}
    found = {}
    for block in (HERE / "README.md").read_text().split("\n## ")[1:]:
        title = block.splitlines()[0]
        found |= dict.fromkeys(re.findall(r"\[(LLM\w+)\]\(\1\.md\)", block), titles[title])
    assert found == {alert: rule["labels"]["severity"] for alert, rule in ALERTS.items()}


@pytest.mark.parametrize("alert", PAGES)
def test_a_runbook_begins_with_what_to_do_first(alert: str) -> None:
    text, rule = PAGES[alert], ALERTS[alert]
    assert text.startswith(f"# {alert}\n\n{rule['annotations']['summary']} Severity `{rule['labels']['severity']}`")
    assert re.findall(r"^## .*$", text, re.M) == SECTIONS
    assert re.search(r"## First\n\n1\. ", text)
    assert re.search(r"```console\n\$ ", text)
    assert ("also sent to the remediator" in text) == ("remediate" in rule["labels"])


@pytest.mark.parametrize("alert", PAGES)
def test_its_queries_and_alert_names_exist(alert: str) -> None:
    for query in re.findall(r"promtool query instant \S+ '(.*)'", PAGES[alert]):
        assert [p for p in lint(query, METRICS) if "target!=" not in p and "without rate" not in p] == []
    named = set(re.findall(r"\bLLM[A-Z]\w+", PAGES[alert]))
    assert named <= set(ALERTS), named - set(ALERTS)
