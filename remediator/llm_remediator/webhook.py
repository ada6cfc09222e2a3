"""Alertmanager's webhook body, version 4, read with suspicion. Pure.

The contract is `notify/webhook/webhook.go` and `template.Data` of Alertmanager 0.25 to 0.34: unknown keys are
ignored (`notification_reason`, `routeLabels` are new), types are not negotiable. The group's own `status` is
ignored: with truncation it may lie, and each alert has its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm_remediator.alertmanager_client import alert_time
from llm_remediator.foreign_json import loads
from llm_remediator.service import Delivery, ReceivedAlert

BODY_LIMIT = 4 * 1024 * 1024
MOST_ALERTS = 5000
_MOST_TRUNCATED = 1_000_000_000
_MOST_PAIRS = 100
_LONGEST = 4096


class BadBodyError(ValueError):
    """Not what Alertmanager 4 sends; the text says what is wrong and what to do (HTTP 400)."""


def parse(body: bytes, sender: str) -> Delivery:
    """The alerts of a webhook body; `BadBodyError` for anything that is not one."""
    try:
        data = loads(body)
    except ValueError as exc:
        raise BadBodyError(f"the body is not JSON: {exc}"[:300]) from None
    if not isinstance(data, dict):
        raise BadBodyError("the body is not a JSON object")
    if data.get("version") != "4":
        raise BadBodyError(
            f'version is {data.get("version")!r}, not "4": this endpoint takes Alertmanager\'s webhook as it '
            "is; remove a custom payload from its webhook_configs"
        )
    alerts = data.get("alerts")
    if not isinstance(alerts, list):
        raise BadBodyError("alerts is not a list")
    if len(alerts) > MOST_ALERTS:
        raise BadBodyError(f"{len(alerts)} alerts in one body; set max_alerts: 50 in webhook_configs")
    truncated = data.get("truncatedAlerts", 0)
    if isinstance(truncated, bool) or not isinstance(truncated, int) or not 0 <= truncated <= _MOST_TRUNCATED:
        raise BadBodyError(f"truncatedAlerts is {truncated!r:.40}, not a count")
    return Delivery(
        alerts=tuple(_alert(raw, i) for i, raw in enumerate(alerts)),
        truncated=truncated,
        group_key=_short(data.get("groupKey")),
        receiver=_short(data.get("receiver")),
        sender=sender,
    )


def _alert(raw: Any, index: int) -> ReceivedAlert:
    where = f"alerts[{index}]"
    if not isinstance(raw, Mapping):
        raise BadBodyError(f"{where} is not an object")
    status = raw.get("status")
    if status not in ("firing", "resolved"):
        raise BadBodyError(f"{where}.status is {status!r}, not firing or resolved")
    return ReceivedAlert(
        status=status,
        labels=_pairs(raw.get("labels"), f"{where}.labels"),
        annotations=_pairs(raw.get("annotations") or {}, f"{where}.annotations"),
        fingerprint=_short(raw.get("fingerprint")),
        starts_at=alert_time(raw.get("startsAt")),
        ends_at=alert_time(raw.get("endsAt")),
    )


def _pairs(raw: Any, where: str) -> dict[str, str]:
    if not isinstance(raw, Mapping) or not all(isinstance(v, str) for v in raw.values()):
        raise BadBodyError(f"{where} is not a mapping of text to text")
    if len(raw) > _MOST_PAIRS or any(len(k) + len(v) > _LONGEST for k, v in raw.items()):
        raise BadBodyError(f"{where} has over {_MOST_PAIRS} entries or one longer than {_LONGEST}")
    return dict(raw)


def _short(value: Any) -> str:
    return value[:_LONGEST] if isinstance(value, str) else ""
