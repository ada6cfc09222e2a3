"""``--config.check``: what the file alone cannot say, tried at the servers: the engine, the key, the canary's path."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from llm_common.guard import Guard
from llm_exporter.clock import SystemClock
from llm_exporter.config import Config
from llm_exporter.discovery import Discoveries
from llm_exporter.engines import by_kind
from llm_exporter.engines.custom import adapter
from llm_exporter.monitor import Monitor
from llm_exporter.scrape import Scraper
from llm_exporter.target_config import Target


async def try_targets(config: Config) -> Sequence[str]:
    """A line per target: what it is, and whether a canary would reach a model. No completion is requested."""
    scraper, guard = Scraper(), Guard()
    try:
        return await asyncio.gather(*(_try(target, scraper, guard) for target in config.targets))
    finally:
        await guard.stop()
        await scraper.close()


async def try_sources(config: Config) -> Sequence[str]:
    """A line per source of targets: how many it names. What is wrong with one is in the log."""
    scraper, guard, up = Scraper(), Guard(), dict[str, bool]()
    discoveries = Discoveries(scraper, SystemClock(), guard, _nobody, up)
    try:
        await discoveries.configure(config)
        found = discoveries.targets().items()
    finally:
        await guard.stop()
        await scraper.close()
    return [f"{name}: {len(targets)} targets{'' if up[name] else '; not all of it can be used'}" for name, targets in found]


async def _nobody() -> None:
    """Nobody waits for news of a source that is read once."""


async def _try(target: Target, scraper: Scraper, guard: Guard) -> str:
    monitor = Monitor(target, scraper, SystemClock(), guard, sends_canaries=False)
    snapshot = await monitor.observe()
    said = f"{target.name}: {snapshot.kind or 'engine not recognised'}, {snapshot.verdict.sentence}"
    engine = adapter(target.described) if target.described is not None else by_kind(snapshot.kind)
    if engine is None or engine.canary is None:
        return f"{said}; no canary"
    if engine.canary.method == "GET":
        return f"{said}; canary: GET {engine.canary.path}"
    key = target.options.canary.api_key_file
    # A body that no model accepts shows whether the path is there and the key fits, and runs nothing.
    page = await scraper.request("POST", target.access, engine.canary.path, 5.0, json={}, token_file=key)
    if page.status in (401, 403):
        return f"{said}; canary: {page.status}, it needs a key: give canary.api_key_file"
    if page.status in (404, 405):
        return f"{said}; canary: {page.status} on {engine.canary.path}, it cannot confirm anything here"
    if page.status is None:
        return f"{said}; canary: {page.error}"
    model = target.options.canary.model or snapshot.model
    nameless = engine.canary.names_model and not model
    return f"{said}; canary: {engine.canary.path} is there" + (", but the model's name is not known" if nameless else "")
