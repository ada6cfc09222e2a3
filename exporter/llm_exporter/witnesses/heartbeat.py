"""The heartbeat's side port: it answers while the engine's event loop, and so its main port, is blocked. Pure."""

from __future__ import annotations

from typing import Any

from llm_exporter.engines import Page
from llm_exporter.engines.shared import finite
from llm_exporter.judge import LoopEvidence

PATH = "/healthz/live"


def loop_evidence(page: Page) -> LoopEvidence | None:
    """Lag, block in progress and culprit from the body of ``/healthz/live`` (200 or 503); None if it is no heartbeat's."""
    body = page.json() if page.status in (200, 503) else None
    checks = body.get("checks") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(checks, dict):
        return None
    lag = finite(checks.get("event_loop_lag_ms"))
    if lag is None:
        return None
    return LoopEvidence(lag / 1000, _culprit(body.get("culprit")), finite(checks.get("blocked_seconds")) or 0.0)


def _culprit(found: Any) -> str | None:
    if not isinstance(found, dict) or not found.get("function"):
        return None
    place = f" ({found['file']}:{found.get('line', '?')})" if found.get("file") else ""
    return f"{found['function']}{place}"
