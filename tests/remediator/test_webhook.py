from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_remediator.webhook import BadBodyError, parse


def body(**changes: Any) -> dict[str, Any]:
    """As Alertmanager 0.34 sends it, its newest keys included."""
    alert = {
        "status": "firing",
        "labels": {"alertname": "LLMEngineStuck", "target": "a", "remediate": "restart"},
        "annotations": {"summary": "stuck"},
        "startsAt": "2026-11-30T03:00:00.123456789Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus/graph",
        "fingerprint": "0123456789abcdef",
    }
    return {
        "receiver": "remediator",
        "status": "firing",
        "alerts": [alert],
        "groupLabels": {},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://am",
        "version": "4",
        "groupKey": "{}:{}",
        "truncatedAlerts": 0,
        "notification_reason": "first notification",
        "routeLabels": {},
        **changes,
    }


def send(data: Any) -> Any:
    return parse(json.dumps(data).encode(), "127.0.0.1")


def test_a_real_body_is_read() -> None:
    delivery = send(body(truncatedAlerts=3))
    (alert,) = delivery.alerts
    assert (alert.target, alert.status, alert.fingerprint) == ("a", "firing", "0123456789abcdef")
    assert alert.starts_at == pytest.approx(1_796_007_600.123, abs=0.001)
    assert alert.ends_at is None, "Go's zero time is no time"
    assert delivery.truncated == 3


def test_a_pair_of_surrogates_is_a_character() -> None:
    (alert,) = send(body(alerts=[{"status": "firing", "labels": {"target": "\U0001f525"}}])).alerts
    assert alert.target == "\U0001f525"


def test_each_alert_has_its_own_status_and_the_groups_is_ignored() -> None:
    first = body()["alerts"][0]
    delivery = send(body(status="firing", alerts=[first, {**first, "status": "resolved"}]))
    assert [a.status for a in delivery.alerts] == ["firing", "resolved"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([], "not a JSON object"),
        ({}, "version is None"),
        (body(version=4), "version is 4"),
        (body(version="5"), "remove a custom payload"),
        (body(alerts=None), "alerts is not a list"),
        (body(alerts={}), "alerts is not a list"),
        (body(alerts=[1]), "alerts[0] is not an object"),
        (body(alerts=[{"labels": {}}]), "alerts[0].status is None"),
        (body(alerts=[{"status": "pending", "labels": {}}]), "'pending'"),
        (body(alerts=[{"status": "firing"}]), "alerts[0].labels"),
        (body(alerts=[{"status": "firing", "labels": {"target": 1}}]), "alerts[0].labels"),
        (body(alerts=[{"status": "firing", "labels": {"x": "y" * 5000}}]), "longer than"),
        (body(groupKey="\ud800"), "surrogates not allowed"),
        (body(truncatedAlerts=-1), "truncatedAlerts"),
        (body(truncatedAlerts=True), "truncatedAlerts"),
        (body(truncatedAlerts=10**400), "not a count"),
        (body(alerts=[{"status": "firing", "labels": {}}] * 5001), "max_alerts: 50"),
    ],
)
def test_anything_else_is_refused_with_words(data: Any, says: str) -> None:
    with pytest.raises(BadBodyError) as caught:
        send(data)
    assert says in str(caught.value)


def test_deep_nesting_and_bad_bytes_are_refused() -> None:
    for raw in (b"[" * 200_000, b"\xff\xfe", b"", b"{", b'{"version":"4"'):
        with pytest.raises(BadBodyError, match="JSON"):
            parse(raw, "x")


@given(st.binary(max_size=300))
def test_no_bytes_crash_it(raw: bytes) -> None:
    with pytest.raises(BadBodyError):
        parse(raw, "x")


JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["alerts", "truncatedAlerts", "groupKey", "receiver", "status"]), JSONISH), JSONISH)
def test_any_json_is_read_or_refused(changes: dict[str, Any], alert: Any) -> None:
    data = body(**changes)
    if isinstance(data["alerts"], list):
        data["alerts"].append(alert)
    try:
        delivery = send(data)
    except BadBodyError:
        return
    for read in delivery.alerts:
        assert read.status in ("firing", "resolved")
        assert all(isinstance(k, str) and isinstance(v, str) for k, v in read.labels.items())
