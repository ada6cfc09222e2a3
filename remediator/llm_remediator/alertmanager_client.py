"""Alertmanager's `GET /api/v2/alerts`: what is active, and what somebody silenced or inhibited, right now.

The same API from 0.16 to 0.34; `mutedBy` came with 0.28.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from llm_remediator.config import Endpoint
from llm_remediator.http_client import JsonClient, checked
from llm_remediator.outcome import Outcome
from llm_remediator.ports import ActiveAlert

TIMEOUT = 10.0
MATCHER = 'remediate="restart"'


class HttpAlertmanager:
    """`ports.AlertmanagerClient` for one Alertmanager; its URL may have a route prefix."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._http = JsonClient(endpoint)

    @property
    def url(self) -> str:
        """Base URL."""
        return self._http.endpoint.url

    async def alerts(self) -> Outcome[tuple[ActiveAlert, ...]]:
        """All alerts for machines, suppressed ones too, so that "silenced" and "gone" differ."""
        wanted = dict.fromkeys(("active", "silenced", "inhibited", "unprocessed"), "true")
        outcome = await self._http.call("GET", "/api/v2/alerts", timeout=TIMEOUT, params={**wanted, "filter": MATCHER})
        return checked(outcome, "Alertmanager", lambda raw: tuple(map(read_alert, _listed(raw))))

    async def close(self) -> None:
        """Close connections."""
        await self._http.close()


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("not a list of alerts")
    return value


def read_alert(raw: Mapping[str, Any]) -> ActiveAlert:
    """One `gettableAlert`. A missing status is an error: it must not read as "not silenced"."""
    status = raw["status"]
    state = str(status["state"])
    if state not in ("active", "suppressed", "unprocessed"):
        raise ValueError(f"alert state {state!r} is not known")
    return ActiveAlert(
        labels={str(k): str(v) for k, v in raw["labels"].items()},
        state=state,
        silenced_by=tuple(map(str, [*status["silencedBy"], *(status.get("mutedBy") or [])])),
        inhibited_by=tuple(map(str, status["inhibitedBy"])),
        fingerprint=str(raw.get("fingerprint", "")),
        starts_at=alert_time(raw.get("startsAt")),
        annotations={str(k): str(v) for k, v in (raw.get("annotations") or {}).items()},
    )


def alert_time(text: object) -> float | None:
    """RFC 3339 as Alertmanager writes it, as Unix seconds; None for Go's zero time or nonsense."""
    if not isinstance(text, str):
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return when.timestamp() if when.year > 1 and when.tzinfo is not None else None
