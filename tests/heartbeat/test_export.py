"""What a running heartbeat writes into the registry that the server's own /metrics shows."""

from __future__ import annotations

import asyncio
import time

from prometheus_client import REGISTRY

from llm_heartbeat import Heartbeat, Settings


def sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_beats_requests_and_dependencies_are_in_the_metrics() -> None:
    async def refuse() -> None:
        raise ConnectionRefusedError

    delays = sample("llm_event_loop_delay_seconds_count")
    own = Heartbeat(Settings(handle_sigterm=False))
    own.essential("export-db", refuse, timeout=0.05, every=0.05)
    own.start()
    own.serving()
    try:
        with own.requests:
            async with asyncio.timeout(15):
                while not (
                    sample("llm_heartbeat_inflight_requests") == 1
                    and sample("llm_event_loop_delay_seconds_count") > delays
                    and abs(sample("llm_event_loop_last_beat_timestamp_seconds") - time.time()) < 5
                    and sample("llm_heartbeat_dependency_checks_total", dependency="export-db", result="failed") >= 3
                    and own.dependencies["export-db"].down
                    and REGISTRY.get_sample_value("llm_heartbeat_dependency_up", {"dependency": "export-db"}) == 0
                ):
                    await asyncio.sleep(0.02)
        async with asyncio.timeout(15):
            while sample("llm_heartbeat_inflight_requests") != 0:
                await asyncio.sleep(0.02)
    finally:
        own.stop()
