"""Telling people: one bounded JSON POST per notice and endpoint. The courier queues and tries again."""

from __future__ import annotations

from llm_remediator.config import Endpoint
from llm_remediator.http_client import JsonClient
from llm_remediator.outcome import Outcome
from llm_remediator.ports import Notice

TIMEOUT = 10.0


class WebhookNotifier:
    """POSTs a notice as JSON to one URL; `text` alone is enough for chat services' incoming webhooks."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._http = JsonClient(endpoint, secret_path=True)

    async def notify(self, notice: Notice) -> Outcome[None]:
        """One attempt."""
        body = {
            "event": notice.event,
            "target": notice.target,
            "text": notice.text,
            "at": notice.at,
            "mode": notice.mode,
            "decision_id": notice.decision_id,
            "details": dict(notice.details),
        }
        sent = await self._http.call("POST", "", timeout=TIMEOUT, body=body)
        return Outcome(sent.status, None, sent.detail, sent.seconds)

    async def close(self) -> None:
        """Close connections."""
        await self._http.close()


class GrafanaNotifier:
    """Marks a notice on dashboards (`POST /api/annotations`, tags `stuckproof`, the event, the target)."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._http = JsonClient(endpoint)

    async def notify(self, notice: Notice) -> Outcome[None]:
        """One attempt."""
        body = {
            "time": round(notice.at * 1000),
            "tags": ["stuckproof", notice.event, f"target:{notice.target}"],
            "text": notice.text,
        }
        sent = await self._http.call("POST", "/api/annotations", timeout=TIMEOUT, body=body)
        return Outcome(sent.status, None, sent.detail, sent.seconds)

    async def close(self) -> None:
        """Close connections."""
        await self._http.close()
