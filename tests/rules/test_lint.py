"""Rules and annotations by their syntax trees: what promtool accepts and would still be wrong."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from rules.exported import exported
from rules.promql import lint, result_labels, selectors
from rules.scenes import RULES, alert_rules

METRICS = exported()
ALERTS = alert_rules()
RECORDING = {
    rule["record"]: rule["expr"]
    for group in yaml.safe_load((RULES / "recording.yml").read_text())["groups"]
    for rule in group["rules"]
}
MACHINE = {"LLMEngineStuck", "LLMEngineFailed", "LLMEngineStarved", "LLMTargetDown"}
ABOUT_ONE_PROCESS = re.compile("LLMHealth(Exporter|Config|FailOpen|Discovery)|LLMRemediation|LLMRemediatorDown")


def template_queries(text: str) -> list[str]:
    """The PromQL inside a template, with its placeholders filled."""
    quoted = r'"((?:[^"\\]|\\.)*)"'
    found = re.findall(rf"printf {quoted}[^|}}]*\| query", text) + re.findall(rf"query {quoted}", text)
    return [q.replace('\\"', '"').replace("%q", '"x"') for q in found]


@pytest.mark.parametrize("alert", ALERTS)
def test_the_expression_is_sound(alert: str) -> None:
    assert lint(ALERTS[alert]["expr"], METRICS) == []


@pytest.mark.parametrize("alert", ALERTS)
def test_the_queries_in_its_texts_are_sound(alert: str) -> None:
    rule = ALERTS[alert]
    for text in (*rule["labels"].values(), *rule["annotations"].values()):
        found = template_queries(text)
        assert len(found) == text.count("query")
        assert [p for query in found for p in lint(query, METRICS)] == []


@pytest.mark.parametrize("record", RECORDING)
def test_a_recording_rule_is_sound_and_named_level_metric_operations(record: str) -> None:
    assert lint(RECORDING[record], METRICS) == []
    assert "instance" not in result_labels(RECORDING[record], METRICS)
    level, metric, _operations = record.split(":")
    assert level in {"target", "state"}
    assert any(name.startswith(metric) for name in METRICS) or metric == "llm_first_token_late"


@pytest.mark.parametrize("alert", ALERTS)
def test_texts_and_labels_follow_the_conventions(alert: str) -> None:
    rule = ALERTS[alert]
    labels, texts = rule["labels"], rule["annotations"]
    assert alert.startswith("LLM")
    assert set(labels) <= {"severity", "remediate", "team"}
    assert labels["severity"] in {"critical", "warning", "info"}
    assert {"summary", "description", "runbook_url"} <= set(texts) <= {"summary", "description", "runbook_url", "target_url"}
    assert "{{" not in texts["summary"], "a summary is the same for the whole group"
    assert texts["summary"].endswith(".")
    assert texts["runbook_url"].endswith(f"/docs/runbooks/{alert}.md")
    assert not any("$value" in text for text in labels.values())
    assert "for" in rule


@pytest.mark.parametrize("alert", ALERTS)
def test_it_is_aggregated_over_the_exporters(alert: str) -> None:
    labels = result_labels(ALERTS[alert]["expr"], METRICS)
    if "target" in labels:
        assert not labels & {"job", "instance"}
        assert ALERTS[alert]["labels"]["team"] == ALERTS["LLMEngineStuck"]["labels"]["team"]
    else:
        assert ABOUT_ONE_PROCESS.match(alert)


@pytest.mark.parametrize("alert", [a for a in ALERTS if not a.startswith("LLMRemediat")])
def test_an_alert_about_a_target_links_to_its_page_once_and_rests_in_maintenance(alert: str) -> None:
    expr, texts = ALERTS[alert]["expr"], ALERTS[alert]["annotations"]
    if "target" not in result_labels(expr, METRICS):
        return
    page = ".Labels.external_url }}"
    assert (page in texts["description"]) + (page in texts.get("target_url", "")) == 1
    assert ("llm_target_maintenance" in expr) == (alert != "LLMPollStale")


def test_only_the_states_that_may_be_restarted_go_to_the_machine() -> None:
    assert {a for a, rule in ALERTS.items() if rule["labels"].get("remediate")} == MACHINE
    assert all(ALERTS[a]["labels"]["remediate"] == "restart" for a in MACHINE)
    assert ALERTS["LLMEngineStuck"]["for"] == "0s"
    assert ALERTS["LLMEngineStuck"]["labels"]["severity"] == "warning"
    assert ALERTS["LLMEngineStuckUnattended"]["labels"]["severity"] == "critical"


def test_target_info_is_only_joined_through_max_by() -> None:
    texts = [r["expr"] for r in ALERTS.values()] + [*RECORDING.values()]
    texts += [q for r in ALERTS.values() for t in r["labels"].values() for q in template_queries(t)]
    for text in texts:
        joined = re.findall(r"max by \([a-z, ]+\) \((?:max_over_time\()?llm_target_info", text)
        assert len(joined) == text.count("llm_target_info")


def test_every_metric_of_the_rules_is_used_for_what_it_is() -> None:
    """The remediator's and the exporter's tables do not overlap, and each rule reads at least one of them."""
    import promql_parser

    for alert, rule in ALERTS.items():
        read = {s.name for s in selectors(promql_parser.parse(rule["expr"]))}
        assert read & set(METRICS) - {"up"}, alert


BAD: list[tuple[str, str]] = [
    ('rate(llm_health_queue_depth{target!=""}[5m])', "rate() of the gauge"),
    ('llm_engine_tokens_total{target!=""} > 5', "without rate()"),
    ('deriv(llm_engine_tokens_total{target!=""}[5m])', "deriv() of the counter"),
    ("llm_health_queue_depth > 5", 'without target!=""'),
    ('llm_health_queue_depth{target=""} > 5', 'without target!=""'),
    ('llm_health_queue_deep{target!=""} > 5', "not exported"),
    ('llm_health_queue_depth{target!="",lane="0"}', "no label lane"),
    ('max by (lane) (llm_health_queue_depth{target!=""})', "no such label"),
    ('llm_health_queue_depth{target!=""} and on (lane) llm_up{target!=""}', "no such label"),
    ('max by (target) (llm_up{target!=""}) and on (target, lane) max by (target) (llm_up{target!=""})', "no such label"),
    ('llm_engine_progress{target!=""} * llm_up{target!=""}', "joined without on()"),
    ('sum without (lane) (llm_engine_progress{target!=""})', "without keeps"),
]


@pytest.mark.parametrize("expr, problem", BAD)
def test_the_lint_sees_what_is_wrong(expr: str, problem: str) -> None:
    assert any(problem in p for p in lint(expr, METRICS)), lint(expr, METRICS)


def test_the_lint_keeps_silent_on_what_is_right() -> None:
    right: list[Any] = [
        'max by (target) (rate(llm_engine_tokens_total{target!=""}[5m])) * on (target) group_left (model) '
        'max by (target, model) (llm_target_info{target!=""})',
        'time() - max by (target) (llm_last_observation_timestamp_seconds{target!=""}) > 120',
        "absent(llm_exporter_build_info)",
    ]
    assert [p for text in right for p in lint(text, METRICS)] == []
