"""One tiny request of our own: marked as ours, cancelled when its time is over, at most one in flight per target."""

from __future__ import annotations

import secrets

from llm_exporter import __version__
from llm_exporter.clock import Clock
from llm_exporter.engines import CanaryPlan, Page
from llm_exporter.fetch_errors import NO_CONNECTION
from llm_exporter.judge import CanaryOutcome, CanaryRequest, CanaryResult
from llm_exporter.scrape import Scraper
from llm_exporter.target_config import Target

USER_AGENT = f"stuckproof-canary/{__version__}"
CONNECT_TIMEOUT = 5.0


async def ask(
    scraper: Scraper, clock: Clock, target: Target, plan: CanaryPlan | None, request: CanaryRequest, model: str | None
) -> CanaryOutcome:
    """Send what the engine's plan says, and tell what came of it.

    Silence means that the server accepted the connection and said nothing in ``canary.timeout``; whatever else is no
    answer of a model cannot confirm anything.
    """
    began = clock.monotonic()
    result, words, status = await _asked(scraper, target, plan, request.lane, model)
    lane = request.lane if plan is not None and plan.lane_header is not None else None
    return CanaryOutcome(request.kind, result, began, clock.monotonic() - began, status, lane, words)


async def _asked(
    scraper: Scraper, target: Target, plan: CanaryPlan | None, lane: str | None, model: str | None
) -> tuple[CanaryResult, str, int | None]:
    canary = target.options.canary
    if plan is None:
        return "none", "this engine has no canary", None
    if plan.body is not None and plan.names_model and model is None:
        return "none", "the model's name is not known; give canary.model, or canary.api_key_file to ask for it", None
    headers = {"User-Agent": USER_AGENT, "X-Request-Id": f"stuckproof-canary-{secrets.token_hex(8)}"}
    if plan.lane_header is not None and lane is not None:
        headers[plan.lane_header] = lane
    page = await scraper.request(
        plan.method,
        target.access,
        plan.path,
        canary.timeout,
        headers=headers,
        json=plan.body(model or "") if plan.body is not None else None,
        token_file=canary.api_key_file,
        connect_timeout=min(CONNECT_TIMEOUT, canary.timeout),
    )
    if page.status is None:
        return _failed(page)
    if plan.answered(page.status, page.json()):
        return "answered", "", page.status
    if page.status in plan.silent_codes:
        return "silent", f"{page.status}, which is this engine's word for silence or a full queue", page.status
    return "http", f"{page.status} without a token" if page.status == 200 else "", page.status


def _failed(page: Page) -> tuple[CanaryResult, str, None]:
    words = page.error or page.kind or "it failed"
    if page.kind == "timeout":
        # A connection that never came about says nothing of the engine behind it.
        return ("none" if page.error == NO_CONNECTION else "silent"), words, None
    if page.kind == "refused":
        return "refused", words, None
    return ("reset" if page.kind == "reset" else "none"), words, None
