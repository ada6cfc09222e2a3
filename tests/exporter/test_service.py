"""One exporter put together: what a reload changes, what is said before the first round, and what no text may break."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.engine_server import Engine, serving
from exporter.virtual_time import VirtualClock
from llm_exporter.config import Config
from llm_exporter.discovery_config import Discovery, FileSd
from llm_exporter.service import Options, Service, calm_collector
from llm_exporter.target_config import Canary, Target, TargetOptions
from llm_exporter.web import Web

CALM = TargetOptions(interval=1.0, timeout=0.5, canary=Canary(confirm=False, idle="off"))


@dataclass
class Running:
    """A service and its HTTP side; its configuration is the test's."""

    config: Config = field(default_factory=Config)
    clock: VirtualClock = field(default_factory=VirtualClock)

    def __post_init__(self) -> None:
        self.service = Service(lambda: self.config, Options(), self.clock)

    async def serve(self) -> None:
        service = self.service
        web = Web(service.fleet, service.guard, service.lag, self.clock, service.state, service.reload)
        self.runner = aiohttp.web.AppRunner(web.app())
        await self.runner.setup()
        await aiohttp.web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.session = aiohttp.ClientSession(f"http://127.0.0.1:{self.runner.addresses[0][1]}")

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(path) as response:
            return response.status, await response.text()

    async def stop(self) -> None:
        await self.session.close()
        await self.service.stop()
        await self.runner.cleanup()
        assert self.service.guard.healthy


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    running = Running()
    await running.serve()
    yield running
    await running.stop()


async def test_it_is_not_ready_before_it_knows_its_targets(running: Running) -> None:
    """The port is open before the discoveries were read; whoever waits for readiness must not be sent on then."""
    assert (await running.get("/-/ready"))[0] == 503
    await running.service.start()
    assert (await running.get("/-/ready"))[0] == 200, "there are none, and that is known"


async def test_a_reload_while_it_starts_waits_for_the_start(running: Running, tmp_path: Path) -> None:
    listed = tmp_path / "t.json"
    listed.write_text('[{"targets": ["127.0.0.1:1"]}]')
    running.service.state.config = running.config = Config(discovery=Discovery(file_sd=(FileSd((str(listed),)),)))
    await asyncio.gather(running.service.start(), running.service.reload(), running.service.reload())
    followers = [task for task in asyncio.all_tasks() if task.get_name().startswith("discovery:")]
    assert len(followers) == 1


async def test_a_reload_takes_every_key(running: Running) -> None:
    """The bound per host and the files of trust too, which are no key of a target."""
    async with serving(Engine(running=1)) as engine:
        targets = tuple(Target(f"t{n}", engine.base, options=CALM) for n in range(6))
        for bound in (2, 1, 6):
            running.config = Config(targets=targets, max_requests_per_host=bound)
            await running.service.reload()
            engine.most_in_flight, engine.metrics_hang = 0, True
            monitors = [running.service.fleet.monitor(target.name) for target in targets]
            await asyncio.gather(*(monitor.observe() for monitor in monitors if monitor is not None))
            assert engine.most_in_flight == bound


async def test_the_hash_follows_the_configuration(running: Running) -> None:
    before = running.service.state.hash
    assert before == Config().hash
    running.config = Config(targets=(Target("t", "http://127.0.0.1:1", options=CALM),))
    await running.service.reload()
    assert running.service.state.hash == running.config.hash != before


async def test_no_name_that_a_server_gives_its_model_breaks_a_page(running: Running) -> None:
    """Half a surrogate pair is valid in JSON and in no encoding: one model's name must not cost the fleet its metrics."""
    model = 'a"b\\c\nd\ud800<script>'
    async with serving(Engine(running=1)) as engine:
        running.config = Config(targets=(Target("t", engine.base, options=CALM, labels={"note": "\udfff"}),))
        await running.service.start()
        await running.service.reload()
        monitor = running.service.fleet.monitor("t")
        assert monitor is not None
        engine.model = model
        await monitor.observe()
        await monitor.observe()
        pages = [await running.get(path) for path in ("/metrics", "/", "/targets/t", "/api/v1/targets/t")]
    assert [status for status, _ in pages] == [200] * 4
    info = next(s for f in parse_text(pages[0][1]) for s in f.samples if s.name == "llm_target_info")
    assert (info.labels["model"], info.labels["note"]) == ('a"b\\c\nd?<script>', "?")


def test_a_fleet_that_only_replaces_what_it_knows_is_not_walked_through_by_the_collector() -> None:
    """Python's own thresholds hold the loop for a quarter of a second every few seconds at 5,000 targets."""
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    try:
        calm_collector()
        walked = gc.get_stats()[2]["collections"]
        known: list[list[int]] = []
        for _ in range(100):
            known = [[number] for number in range(10_000)]
        assert len(known) == 10_000
        assert gc.get_stats()[2]["collections"] == walked
    finally:
        gc.set_threshold(*before)
        if not frozen:
            gc.unfreeze()
