"""Telling people: one JSON POST per notice and endpoint, queued, bounded, never waited for by an action."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

from llm_remediator.config import Endpoint
from llm_remediator.http_client import JsonClient
from llm_remediator.ports import Notice, Notifier, Outcome, Status, failed

TIMEOUT = 10.0
_QUEUE = 200
log = logging.getLogger("llm.remediator.notify")


class WebhookNotifier:
    """POSTs a notice as JSON to one URL; `text` alone is enough for chat services' incoming webhooks."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._http = JsonClient(endpoint)

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


class Dispatcher:
    """Hands notices to all notifiers from a queue of its own. A full queue drops the oldest and counts it."""

    def __init__(self, notifiers: Sequence[Notifier]) -> None:
        self._notifiers = tuple(notifiers)
        self._queue: deque[Notice] = deque()
        self._wake = asyncio.Event()
        self.failures = 0
        """Notices that one endpoint did not take, dropped ones included."""

    async def notify(self, notice: Notice) -> Outcome[None]:
        """Queue it; returns at once. A `ports.Notifier` itself."""
        if not self._notifiers:
            return Outcome(Status.OK)
        dropped = len(self._queue) >= _QUEUE
        if dropped:
            lost = self._queue.popleft()
            self.failures += len(self._notifiers)
            log.error("too many notices are waiting; one was dropped", extra={"target": lost.target})
        self._queue.append(notice)
        self._wake.set()
        return failed(Status.REFUSED, "queue full: the oldest was dropped") if dropped else Outcome(Status.OK)

    async def run(self) -> None:
        """The eternal task that sends."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.drain()

    async def drain(self) -> None:
        """Send what is queued now, each notice to all endpoints at once."""
        while self._queue:
            notice = self._queue.popleft()
            outcomes = await asyncio.gather(*(n.notify(notice) for n in self._notifiers))
            for outcome in outcomes:
                if not outcome.ok:
                    self.failures += 1
                    log.error("a notice was not delivered: %s", outcome.detail, extra={"target": notice.target})
