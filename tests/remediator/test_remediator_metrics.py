from __future__ import annotations

import re

from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from llm_remediator import names
from llm_remediator.metrics import WebhookCounts, registry
from remediator.fake_service import NOW, OVERVIEW, FakeService, target


def render(service: FakeService) -> str:
    return generate_latest(registry(service, WebhookCounts())).decode()


def test_every_family_of_the_table_is_served_with_its_labels() -> None:
    service = FakeService()
    service.views = [target("a", cooldown_until=NOW, last_restart=NOW)]
    service.view = OVERVIEW.__class__(
        **{**{f: getattr(OVERVIEW, f) for f in OVERVIEW.__slots__}, "task_deaths": {"worker": 1}}
    )
    families = {f.name: f for f in text_string_to_metric_families(render(service))}
    for metric in names.ALL:
        family = families.pop(metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name)
        assert family.type == metric.kind
        assert family.documentation == metric.help
        labels = {label for s in family.samples for label in s.labels if label != "le"}
        assert labels == set(metric.labels), metric.name
    assert not families, "served and not in the table"


def test_names_follow_the_design() -> None:
    for metric in names.ALL:
        assert re.fullmatch(r"llm_remediation_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.help.endswith(".")


def test_values() -> None:
    service = FakeService()
    service.views = [
        target("a", latched=True, in_progress=True, budget_remaining=1, next_gate="cooldown", paused_until=NOW + 5),
        target("b", foreign_owner="autoheal", wrong_container=True, cooldown_until=NOW + 60),
    ]
    text = render(service)
    for line in (
        'llm_remediation_latched{target="a"} 1.0',
        'llm_remediation_latched{target="b"} 0.0',
        'llm_remediation_paused{target="a"} 1.0',
        'llm_remediation_in_progress{target="a"} 1.0',
        'llm_remediation_foreign_owner{target="b"} 1.0',
        'llm_remediation_wrong_container{target="b"} 1.0',
        'llm_remediation_budget_remaining{target="a"} 1.0',
        'llm_remediation_next_gate_info{gate="cooldown",target="a"} 1.0',
        'llm_remediation_mode_info{mode="act"} 1.0',
        'llm_remediation_mode_info{mode="observe"} 0.0',
        'llm_remediation_docker_up{host="gpu-2"} 0.0',
        'llm_remediation_decisions_total{decision="skip",reason="not_confirmed",target="a"} 4.0',
        'llm_remediation_downtime_seconds_bucket{le="30.0",target="a"} 1.0',
        'llm_remediation_downtime_seconds_bucket{le="+Inf",target="a"} 2.0',
        'llm_remediation_downtime_seconds_count{target="a"} 2.0',
        'llm_remediation_downtime_seconds_sum{target="a"} 720.0',
    ):
        assert line in text, line
    assert 'cooldown_until_timestamp_seconds{target="a"}' not in text, "no cooldown is no sample"
