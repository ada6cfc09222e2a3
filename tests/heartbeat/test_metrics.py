"""Metrics in a registry of their own: names, bounds, and what somebody else has taken."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from llm_heartbeat import metrics
from llm_heartbeat.faults import Faults


def test_a_name_that_somebody_has_taken_is_left_to_them() -> None:
    registry, faults = CollectorRegistry(), Faults()
    Gauge("llm_event_loop_lag_seconds", "theirs", registry=registry).set(7)
    own = metrics.Metrics(faults, registry)
    own.set("llm_event_loop_lag_seconds", 1)
    own.set("llm_event_loop_lag_seconds", 2)
    assert registry.get_sample_value("llm_event_loop_lag_seconds") == 7
    assert faults.counts == {"metrics": 1}


def test_the_function_label_is_bounded() -> None:
    registry = CollectorRegistry()
    own = metrics.Metrics(Faults(), registry)
    for n in range(100):
        own.blocked_by(f"app.f{n}")
    lines = [
        li for li in generate_latest(registry).decode().splitlines() if li.startswith("llm_event_loop_blocked_by_total{")
    ]
    assert len(lines) == 33
    assert 'llm_event_loop_blocked_by_total{function="other"} 68.0' in lines


def test_unknown_values_export_nothing() -> None:
    registry = CollectorRegistry()
    own = metrics.Metrics(Faults(), registry)
    own.set("llm_health_queue_depth", None)
    assert b"queue_depth" not in generate_latest(registry)


def test_faults_are_counted_logged_once_and_exported(caplog: pytest.LogCaptureFixture) -> None:
    registry, faults = CollectorRegistry(), Faults()
    for _ in range(3):
        with faults.passed_by("sources"):
            raise OSError("gone")
    own = metrics.Metrics(faults, registry)
    own.show_faults()
    own.show_faults()
    assert registry.get_sample_value("llm_heartbeat_errors_total", {"where": "sources"}) == 3
    assert len([r for r in caplog.records if "gone" in r.getMessage()]) == 1


def test_no_name_of_ours_ends_in_a_way_prometheus_refuses() -> None:
    for name, (kind, text, _) in metrics.TABLE.items():
        assert name.startswith("llm_")
        assert "vllm" not in name, "vLLM unregisters every collector with that in its name"
        assert text.endswith(".")
        assert (kind == "counter") == name.endswith("_total")
