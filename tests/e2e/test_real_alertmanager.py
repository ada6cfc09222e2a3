"""Against real Alertmanagers: silences, inhibition, retries after 503, truncation, a pair of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from e2e.real_alertmanager import ALERT, PROGRAM, Alertmanager
from e2e.remedy_stage import Stage
from e2e.tiny_docker import Hands, engine, import_image
from llm_remediator.alertmanager_client import HttpAlertmanager
from llm_remediator.config import Endpoint
from llm_remediator.origin import BrowserGuard
from llm_remediator.ports import ActiveAlert
from llm_remediator.web import RemediatorWeb
from remediator.fake_service import FakeService

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(120),
    pytest.mark.skipif(PROGRAM is None, reason="no Alertmanager; Debian's package prometheus-alertmanager has one"),
]
Start = Callable[..., Alertmanager]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[Alertmanager] = []

    def begin(webhook: str, **options: Any) -> Alertmanager:
        made.append(Alertmanager(tmp_path / f"am-{len(made)}", webhook, **options))
        return made[-1]

    yield begin
    for each in made:
        each.stop()


async def off(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return await asyncio.to_thread(lambda: call(*args, **options))


async def seen(client: HttpAlertmanager, wanted: Callable[[tuple[ActiveAlert, ...]], bool]) -> tuple[ActiveAlert, ...]:
    async with asyncio.timeout(20):
        while True:
            outcome = await client.alerts()
            assert outcome.ok, outcome.detail
            if wanted(outcome.get()):
                return outcome.get()
            await asyncio.sleep(0.1)


async def test_silenced_inhibited_and_resolved_are_told_apart(start: Start) -> None:
    am = await off(start, "http://127.0.0.1:9/")
    client = HttpAlertmanager(Endpoint(am.url))
    assert (await client.alerts()).get() == ()
    await off(am.fire, ALERT, {"alertname": "Other", "target": "engine"})
    (alert,) = await seen(client, lambda found: len(found) == 1 and found[0].firing)
    assert alert.target == "engine"
    assert alert.starts_at is not None
    silence = await off(am.silence, target="engine")
    (alert,) = await seen(client, lambda found: bool(found and found[0].silenced_by))
    assert (alert.firing, alert.silenced_by) == (False, (silence,))
    await off(am.expire, silence)
    await seen(client, lambda found: found[0].firing)
    await off(am.fire, {"alertname": "Maintenance", "target": "engine"})
    (alert,) = await seen(client, lambda found: bool(found and found[0].inhibited_by))
    assert not alert.firing
    await off(am.fire, ALERT, resolved=True)
    await seen(client, lambda found: found == ())
    await client.close()


async def test_a_503_is_tried_again_until_it_is_stored_and_resolved_comes_after(start: Start) -> None:
    service = FakeService()
    service.broken = "disk full"
    app = RemediatorWeb(service, BrowserGuard(), "").app()
    async with TestServer(app) as server:
        am = await off(start, str(server.make_url("/api/v1/alerts")))
        await off(am.fire)
        await asyncio.sleep(2)
        assert not service.deliveries
        service.broken = ""
        async with asyncio.timeout(30):
            while not service.deliveries:
                await asyncio.sleep(0.1)
        assert service.deliveries[0].alerts[0].status == "firing"
        await off(am.fire, resolved=True)
        async with asyncio.timeout(30):
            while service.deliveries[-1].alerts[0].status != "resolved":
                await asyncio.sleep(0.1)


async def test_what_max_alerts_leaves_out_is_counted_and_still_in_the_api(start: Start) -> None:
    service = FakeService()
    async with TestServer(RemediatorWeb(service, BrowserGuard(), "").app()) as server:
        am = await off(start, str(server.make_url("/api/v1/alerts")), max_alerts=2)
        await off(am.fire, *({**ALERT, "target": f"engine-{n}"} for n in range(5)))
        async with asyncio.timeout(30):
            while not any(d.truncated for d in service.deliveries):
                await asyncio.sleep(0.1)
        cut = next(d for d in service.deliveries if d.truncated)
        assert (len(cut.alerts), cut.truncated) == (2, 3)
        client = HttpAlertmanager(Endpoint(am.url))
        assert len((await client.alerts()).get()) == 5, "the API has them all: that is what the reconcile reads"
        await client.close()


@pytest.fixture
def stage_of(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    client = engine()
    if client is None:
        pytest.skip("no Docker Engine answers; `make test-e2e` starts one")
    import_image(client)
    hands = Hands(client)
    stages: list[Stage] = []

    def make(**settings: Any) -> Stage:
        folder = tmp_path / "stage"
        folder.mkdir()
        stages.append(Stage(folder, client, hands.run(), **settings))
        return stages[-1]

    yield make
    for stage in stages:
        stage.close()
    hands.clean()
    client.close()


def test_a_pair_of_alertmanagers_with_duplicates_makes_one_restart(stage_of: Callable[..., Stage], start: Start) -> None:
    stage = stage_of()
    webhook = f"http://127.0.0.1:{stage.port}/api/v1/alerts"
    first = start(webhook)
    second = start(webhook, peers=[first])
    stage.config.write_text(
        stage.config.read_text().replace(
            f'"http://127.0.0.1:{stage.world.server_port}/am"', f'"{first.url}", "{second.url}"'
        )
    )
    stage.start()
    for each in (first, second):
        each.fire({**ALERT, "target": stage.name})
    (attempt,) = stage.wait_closed(1)
    for each in (first, second):
        each.fire({**ALERT, "target": stage.name}, resolved=True)
    assert attempt["result"] in ("verified", "recovered", "recovered_unverified")
    assert stage.starts() == 1
    assert len(stage.attempts()) == 1


def test_a_silence_that_only_one_of_them_knows_stops_the_restart(stage_of: Callable[..., Stage], start: Start) -> None:
    stage = stage_of()
    webhook = f"http://127.0.0.1:{stage.port}/api/v1/alerts"
    first, second = start(webhook), start(webhook)
    stage.config.write_text(
        stage.config.read_text().replace(
            f'"http://127.0.0.1:{stage.world.server_port}/am"', f'"{first.url}", "{second.url}"'
        )
    )
    second.silence(target=stage.name)
    stage.start()
    for each in (first, second):
        each.fire({**ALERT, "target": stage.name})
    decision = stage.wait_decision("silenced")
    assert decision["verb"] in ("skip", "defer")
    assert stage.starts() == 0
    assert stage.attempts() == []
