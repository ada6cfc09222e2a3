"""The exporter's HTTP face, served for real: metrics in both formats, API, probes, proof, reload, pages."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import aiohttp
import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.engine_server import Engine, serving
from exporter.virtual_time import VirtualClock
from llm_common.errors import ConfigError
from llm_exporter.collector import OPENMETRICS, TEXT, content_type
from llm_exporter.config import Config
from llm_exporter.judge import State
from llm_exporter.names import OWN_FAMILIES, TARGET_FAMILIES
from llm_exporter.service import Options, Service
from llm_exporter.target_config import Canary, Limits, Target, TargetOptions
from llm_exporter.web import Web

QUICK = TargetOptions(
    interval=1.0, timeout=0.5, stalled_after=3.0, stuck_after=6.0, start_grace=0.0,
    canary=Canary(timeout=0.2, confirm=False, idle="off"),
)  # fmt: skip


@dataclass
class Exporter:
    """A service whose monitors are looked through by the test, and its HTTP side on a real port."""

    service: Service
    session: aiohttp.ClientSession
    clock: VirtualClock
    configs: list[Config | ConfigError]

    async def look(self, seconds: float = 1.0) -> None:
        self.clock.now += seconds
        self.service.lag.turned_at = self.clock.now
        for snapshot in list(self.service.fleet.snapshots()):
            monitor = self.service.fleet.monitor(snapshot.name)
            assert monitor is not None
            await monitor.observe()

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        async with self.session.get(path, headers=headers) as response:
            return response.status, await response.text()

    async def json(self, path: str) -> object:
        async with self.session.get(path) as response:
            return await response.json()

    async def page(self, name: str) -> str:
        return (await self.get(name))[1]


async def started(targets: list[Target], lifecycle: bool = True) -> tuple[Exporter, aiohttp.web.AppRunner]:
    clock = VirtualClock()
    configs: list[Config | ConfigError] = [Config(targets=tuple(targets))]

    def read() -> Config:
        if isinstance(configs[0], ConfigError):
            raise configs[0]
        return configs[0]

    service = Service(read, Options(), clock)
    await service.fleet.set_targets(targets)
    web = Web(
        service.fleet, service.guard, service.lag, clock, service.state,
        service.reload if lifecycle else None, "http://x/exporter/",
    )  # fmt: skip
    runner = aiohttp.web.AppRunner(web.app())
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
    session = aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}")
    return Exporter(service, session, clock, configs), runner


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with serving(Engine(running=4)) as engine:
        yield engine


@pytest.fixture
async def exporter(engine: Engine) -> AsyncIterator[Exporter]:
    labels = {"team": 'a"b\\c\nd<script>'}
    exporter, runner = await started([Target("t one", engine.base, labels=labels, options=QUICK)])
    yield exporter
    await exporter.session.close()
    await exporter.service.stop()
    await runner.cleanup()
    assert exporter.service.guard.healthy


async def stick(exporter: Exporter, engine: Engine) -> None:
    await exporter.look()
    engine.work()
    for _ in range(9):
        await exporter.look()


async def test_both_formats_are_read_by_real_parsers_and_say_the_same(exporter: Exporter, engine: Engine) -> None:
    await exporter.look()
    engine.work()
    await exporter.look()
    text = (await exporter.get("/metrics"))[1]
    openmetrics = (await exporter.get("/metrics", Accept="application/openmetrics-text"))[1]
    assert openmetrics.endswith("# EOF\n")
    assert text.endswith("\n")

    def samples(families: object) -> set[tuple[str, frozenset[tuple[str, str]]]]:
        return {
            (sample.name, frozenset(sample.labels.items()))
            for family in families  # type: ignore[attr-defined]
            for sample in family.samples
            if sample.name.startswith("llm_") and not sample.name.endswith("_created")
        }

    one, two = samples(parse_text(text)), samples(parse_openmetrics(openmetrics))
    assert one == two
    info = next(s for f in parse_text(text) for s in f.samples if s.name == "llm_target_info")
    assert info.labels["team"] == 'a"b\\c\nd<script>'
    assert (info.labels["engine_kind"], info.labels["version"], info.labels["model"]) == ("vllm", "0.32.0", "m")
    types = {family.name: family.type for family in parse_openmetrics(openmetrics)}
    assert types["llm_health_state"] == "stateset"
    assert types["llm_target"] == "info"
    assert types["llm_engine_tokens"] == "counter"


async def test_promtool_finds_nothing_to_say_against_the_page(exporter: Exporter, engine: Engine) -> None:
    await stick(exporter, engine)
    page = (await exporter.get("/metrics"))[1]
    assert "llm_engine_first_token_requests_total{" in page
    found = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr, found.returncode) == ("", "", 0)


async def test_every_sample_is_of_a_family_that_is_documented(exporter: Exporter, engine: Engine) -> None:
    await stick(exporter, engine)
    text = (await exporter.get("/metrics"))[1]
    labels = {family.name: set(family.labels) for family in (*TARGET_FAMILIES, *OWN_FAMILIES)}
    for family in parse_text(text):
        for sample in family.samples:
            if sample.name.startswith("llm_"):
                assert sample.name in labels
                extra = set(sample.labels) - labels[sample.name]
                assert extra <= ({"team"} if sample.name == "llm_target_info" else set()), sample


async def test_states_progress_and_stall_are_exported_along_a_hang(exporter: Exporter, engine: Engine) -> None:
    def value(page: str, sample: str) -> str | None:
        found = re.search(rf"^{re.escape(sample)} (.*)$", page, re.MULTILINE)
        return found[1] if found else None

    progress = 'llm_engine_progress{target="t one",lane="0"}'
    page = await exporter.page("/metrics")
    assert value(page, 'llm_health_state{target="t one",llm_health_state="unknown"}') == "1"
    assert value(page, 'llm_up{target="t one"}') == "0"
    await exporter.look()
    page = await exporter.page("/metrics")
    assert value(page, 'llm_health_state{target="t one",llm_health_state="busy"}') == "1"
    assert value(page, progress) is None  # the first look knows no progress yet
    engine.work()
    await exporter.look()
    assert value(await exporter.page("/metrics"), progress) == "1"
    for _ in range(8):
        await exporter.look()
    page = await exporter.page("/metrics")
    assert value(page, progress) == "0"
    assert value(page, 'llm_health_state{target="t one",llm_health_state="stuck"}') == "1"
    assert page.count('llm_health_state{target="t one"') == len(State)
    assert value(page, 'llm_engine_stalled_seconds{target="t one",lane="0"}') == "8"
    assert value(page, 'llm_engine_stuck_bound_seconds{target="t one",lane="0"}') == "6"
    assert value(page, 'llm_health_transitions_total{target="t one",to="stuck"}') == "1"
    assert value(page, 'llm_engine_first_token_requests_total{target="t one",within="10"}') == "3"


async def test_old_numbers_are_never_served(exporter: Exporter, engine: Engine) -> None:
    await exporter.look()
    engine.work()
    await exporter.look()
    exporter.clock.now += 10.0
    page = await exporter.page("/metrics")
    assert 'llm_up{target="t one"} 0' in page
    assert 'llm_health_state{target="t one",llm_health_state="unknown"} 1' in page
    assert "llm_engine_progress{" not in page
    assert "llm_engine_tokens_total{" not in page
    assert "llm_last_observation_timestamp_seconds{" in page
    said = await exporter.json("/api/v1/targets/t%20one")
    assert (said["state"], said["up"], said["lanes"]) == ("unknown", False, [])  # type: ignore[index]
    assert (await exporter.get("/targets/t%20one/live"))[0] == 200


async def test_gzip_is_used_where_asked_for(exporter: Exporter) -> None:
    async with exporter.session.get("/metrics", headers={"Accept-Encoding": "gzip"}) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert "llm_health_state" in await response.text()
    async with exporter.session.get("/metrics", headers={"Accept-Encoding": "identity"}) as response:
        assert "Content-Encoding" not in response.headers


@pytest.mark.parametrize(
    "accept, expected",
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/plain;version=0.0.4", TEXT),
        ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
         "text/plain;version=0.0.4;q=0.5,*/*;q=0.1", OPENMETRICS),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.75", TEXT),
        ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,"
         "text/plain;version=0.0.4;q=0.3", TEXT),
        ("application/openmetrics-text;q=x", TEXT),
    ],
)  # fmt: skip
def test_the_format_follows_the_accept_header(accept: str, expected: str) -> None:
    assert content_type(accept) == expected


async def test_the_api_says_what_the_contract_promises(exporter: Exporter, engine: Engine) -> None:
    await stick(exporter, engine)
    listed = (await exporter.json("/api/v1/targets"))["targets"]  # type: ignore[index]
    assert set(listed[0]) == {
        "name", "url", "kind", "version", "model", "labels", "maintenance", "state", "since", "reason", "sentence",
        "progress", "held", "up", "live", "ready", "last_observation", "process_started", "incarnation",
        "restarts_seen", "last_restart_seen", "last_unserved", "idle_verified_at", "last_progress",
        "canary_available", "native_health", "lanes",
    }  # fmt: skip
    assert set(listed[0]["lanes"][0]) == {
        "lane", "state", "reason", "progress", "held", "stalled_seconds", "bound_seconds", "bound_why", "flat_since",
        "last_progress",
    }  # fmt: skip
    one = await exporter.json("/api/v1/targets/t%20one")
    assert [entry["state"] for entry in one["history"]] == ["busy", "stalled", "stuck"]  # type: ignore[index]
    assert {"lane", "series", "value", "moved_at"} == set(one["evidence"][0])  # type: ignore[index]
    assert (await exporter.get("/api/v1/targets/none"))[0] == 404
    assert "t one" in (await exporter.get("/api/v1/targets/none"))[1]


async def test_a_proof_is_fresh_and_names_flat_since_and_process(exporter: Exporter, engine: Engine) -> None:
    await stick(exporter, engine)
    exporter.clock.now += 1.0
    proof = asyncio.create_task(_post(exporter, "/api/v1/targets/t%20one/proof"))
    await exporter.clock.settle(2)  # the monitor's own loop, and the pause of the proof
    await exporter.clock.advance(1.0, sleepers=0)
    status, said = await proof
    assert status == 200
    assert set(said) == {
        "target", "state", "sentence", "reason", "lane", "progress", "held", "flat_since", "process_started",
        "incarnation", "observed_at", "bound_seconds", "bound_why", "would_change", "hardware", "evidence",
    }  # fmt: skip
    assert (said["state"], said["lane"], said["progress"], said["held"]) == ("stuck", "0", 0, 4)
    assert said["observed_at"] == exporter.clock.unix()
    assert said["flat_since"] == pytest.approx(exporter.clock.unix() - 10.0)
    assert said["process_started"] == engine.started
    assert (await _post(exporter, "/api/v1/targets/none/proof"))[0] == 404


async def _post(exporter: Exporter, path: str) -> tuple[int, dict[str, object]]:
    async with exporter.session.post(path) as response:
        return response.status, await response.json(content_type=None)


async def test_probes_follow_the_table(exporter: Exporter, engine: Engine) -> None:
    async def codes() -> tuple[int, int, int]:
        live, ready, startup = [
            (await exporter.get(f"/targets/t%20one/{probe}"))[0] for probe in ("live", "ready", "startup")
        ]
        return live, ready, startup

    await exporter.look()
    assert await codes() == (200, 200, 200)
    engine.work()
    for _ in range(5):
        await exporter.look()
    assert exporter.service.fleet.snapshot("t one").verdict.state is State.STALLED  # type: ignore[union-attr]
    assert await codes() == (200, 200, 200)
    for _ in range(4):
        await exporter.look()
    assert await codes() == (503, 503, 200)
    body = await exporter.page("/targets/t%20one/live")
    assert '"failed": ["not_stuck"]' in body
    engine.status = 401
    await exporter.look()
    assert await codes() == (200, 200, 200)  # unknown
    engine.metrics_hang = True
    await exporter.look()
    assert await codes() == (200, 200, 200)  # unreachable: readiness must not cascade
    assert (await exporter.get("/targets/none/live"))[0] == 404
    assert (await exporter.get("/targets/t%20one/alive"))[0] == 404


async def test_a_limit_has_hysteresis(exporter: Exporter, engine: Engine) -> None:
    monitor = exporter.service.fleet.monitor("t one")
    assert monitor is not None
    monitor.reconfigure(replace(monitor.target, options=replace(QUICK, ready_limits=Limits(queue=10))))
    for waiting, ready in ((5, 200), (10, 503), (9.5, 503), (8.9, 200), (9.5, 200), (12, 503)):
        engine.waiting = waiting
        engine.work()
        await exporter.look()
        status, body = await exporter.get("/targets/t%20one/ready")
        assert status == ready, waiting
        assert (await exporter.get("/targets/t%20one/live"))[0] == 200
    assert '"queue": "failed"' in body


async def test_if_too_many_would_be_killed_at_once_none_is() -> None:
    async with serving(Engine(running=1)) as engine:
        targets = [Target(f"t{n}", engine.base, options=QUICK) for n in range(3)]
        exporter, runner = await started(targets)
        try:
            await stick(exporter, engine)
            assert [(await exporter.get(f"/targets/t{n}/live"))[0] for n in range(3)] == [200, 200, 200]
            assert "llm_exporter_fail_open 1" in await exporter.page("/metrics")
            assert "fail_open" in (await exporter.get("/targets/t0/live"))[1]
            await exporter.service.fleet.set_targets(targets[:1])
            assert (await exporter.get("/targets/t0/live"))[0] == 503
            assert "llm_exporter_fail_open 0" in await exporter.page("/metrics")
        finally:
            await exporter.session.close()
            await exporter.service.stop()
            await runner.cleanup()


async def test_health_is_the_exporters_own_and_ready_waits_for_the_first_round(exporter: Exporter) -> None:
    assert (await exporter.get("/-/healthy"))[0] == 200
    assert (await exporter.get("/-/ready"))[0] == 503
    await exporter.look()
    assert (await exporter.get("/-/ready"))[0] == 200
    exporter.clock.now += 60.0
    status, words = await exporter.get("/-/healthy")
    assert (status, "has not turned" in words) == (503, True)


async def test_a_reload_keeps_the_history_of_targets_that_stay(exporter: Exporter, engine: Engine) -> None:
    await stick(exporter, engine)
    stays = Target("t one", engine.base, labels={"team": "new"}, options=QUICK)
    exporter.configs[0] = Config(targets=(stays, Target("new", engine.base, options=QUICK)))
    assert (await exporter.session.post("/-/reload")).status == 200
    assert (await exporter.json("/api/v1/targets/t%20one"))["state"] == "stuck"  # type: ignore[index]
    assert 'team="new"' in await exporter.page("/metrics")
    assert (await exporter.json("/api/v1/targets/new"))["state"] == "unknown"  # type: ignore[index]
    hash_before = re.search(r'hash="(\w+)"', await exporter.page("/metrics"))
    exporter.configs[0] = Config(targets=(replace(stays, url="http://127.0.0.1:1"),))
    assert (await exporter.session.post("/-/reload")).status == 200
    assert (await exporter.json("/api/v1/targets/t%20one"))["state"] == "unknown"  # type: ignore[index]
    assert (await exporter.get("/api/v1/targets/new"))[0] == 404
    assert 'target="new"' not in await exporter.page("/metrics")
    assert hash_before is not None
    assert hash_before[1] not in await exporter.page("/metrics")


async def test_a_bad_reload_keeps_the_old_configuration_and_says_so(exporter: Exporter) -> None:
    assert "llm_exporter_config_last_reload_successful 1" in await exporter.page("/metrics")
    exporter.configs[0] = ConfigError(["targets[0].url: is required", "targets[1].url: is required"])
    async with exporter.session.post("/-/reload") as response:
        assert response.status == 500
        assert "targets[1].url: is required" in await response.text()
    assert "llm_exporter_config_last_reload_successful 0" in await exporter.page("/metrics")
    assert (await exporter.get("/api/v1/targets/t%20one"))[0] == 200


async def test_reload_over_http_is_off_unless_asked_for(engine: Engine) -> None:
    exporter, runner = await started([Target("t", engine.base, options=QUICK)], lifecycle=False)
    try:
        async with exporter.session.post("/-/reload") as response:
            assert response.status == 403
        assert (await exporter.get("/-/reload"))[0] == 405
    finally:
        await exporter.session.close()
        await exporter.service.stop()
        await runner.cleanup()


async def test_the_shown_configuration_is_yaml_with_every_default(exporter: Exporter) -> None:
    shown = yaml.safe_load(await exporter.page("/config"))
    assert shown["targets"][0]["stalled_after"] == 3.0
    assert shown["defaults"]["stuck_after_blind"] == 900.0


class _Checker(HTMLParser):
    """Collects tags, text and links; fails on anything left open."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "br", "link"):
            self.open.append(tag)
        self.links += [value for key, value in attrs if key == "href" and value is not None]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


async def test_pages_are_well_formed_escaped_and_linked_below_the_external_url(exporter: Exporter, engine: Engine) -> None:
    await stick(exporter, engine)
    for path, words in (("/", "t one"), ("/targets/t%20one", "nothing moved"), ("/targets/%3Cscript%3E", "No such target")):
        async with exporter.session.get(path) as response:
            page = await response.text()
            assert response.headers["Content-Security-Policy"].startswith("default-src 'none'")
        checker = _Checker()
        checker.feed(page)
        assert checker.open == []
        assert "script" not in checker.tags
        assert words in checker.text
        assert all(link.startswith(("http://x/exporter/", "data:,")) for link in checker.links)
    page = await exporter.page("/targets/t%20one")
    assert "d&lt;script&gt;" in page
    assert "vllm:iteration_tokens_total_count" in page


async def test_before_the_first_look_the_page_says_since_when_it_is_under_way(exporter: Exporter) -> None:
    exporter.clock.now += 7.0
    assert "7s ago" in await exporter.page("/")
    page = await exporter.page("/targets/t%20one")
    assert "the first look is under way" in page
    assert re.search(r"<dt>In this state since</dt><dd>[0-9:]{8} UTC, 7s ago</dd>", page)
    assert "<dt>Last look</dt><dd>never</dd>" in page
    assert "<dt>Process started</dt><dd>not known</dd>" in page


async def test_counts_are_shown_to_the_last_digit_and_cells_name_their_column(exporter: Exporter, engine: Engine) -> None:
    engine.steps, engine.kv = 12_345_678, 0.4375123
    await exporter.look()
    page = await exporter.page("/targets/t%20one")
    assert '<td data-head="Last value">12345678</td>' in page
    assert '<td data-head="Last value">0.437512</td>' in page
    assert re.search(r'running</td><td data-head="Last value">\d+</td><td data-head="Moved">proves nothing', page)
    assert '<td data-head="Looked at">' in await exporter.page("/")


async def test_states_and_requests_carry_the_time_that_a_log_has(exporter: Exporter, engine: Engine) -> None:
    await stick(exporter, engine)
    since = datetime.fromtimestamp(next(exporter.service.fleet.snapshots()).since, UTC)
    page = await exporter.page("/targets/t%20one")
    assert f'<td data-head="From">{since:%H:%M:%S} UTC, ' in page
    assert f"as of {datetime.fromtimestamp(exporter.clock.unix(), UTC):%Y-%m-%d %H:%M:%S} UTC" in page
    exporter.clock.now += 86_400
    assert f'<td data-head="From">{since:%m-%d %H:%M:%S} UTC, ' in await exporter.page("/targets/t%20one")


async def test_a_page_that_is_read_aloud_can_be_held_still(exporter: Exporter) -> None:
    for path in ("/", "/targets/t%20one"):
        assert 'http-equiv="refresh"' in await exporter.page(path)
        assert f'<a href="http://x/exporter{path}?hold">' in await exporter.page(path)
        held = await exporter.page(f"{path}?hold")
        assert 'http-equiv="refresh"' not in held
        assert f'<a href="http://x/exporter{path}">' in held


async def test_the_raw_page_is_fetched_on_demand_and_is_plain_text(exporter: Exporter, engine: Engine) -> None:
    engine.page = "<script>alert(1)</script>\n"
    async with exporter.session.get("/targets/t%20one/raw") as response:
        assert response.content_type == "text/plain"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert "<script>alert(1)</script>" in await response.text()
    asked = engine.asked["/metrics"]
    answers = await asyncio.gather(*(exporter.get("/targets/t%20one/raw") for _ in range(20)))
    assert {status for status, _ in answers} == {200}
    assert engine.asked["/metrics"] < asked + 20  # callers at the same time share one request
    engine.metrics_hang = True
    assert (await exporter.get("/targets/t%20one/raw"))[0] == 502


async def test_two_hundred_proofs_and_probes_leave_no_task_and_no_socket(exporter: Exporter, engine: Engine) -> None:
    def resources() -> tuple[int, int]:
        return len(asyncio.all_tasks()), len(list(Path("/proc/self/fd").iterdir()))

    await exporter.look()
    engine.work()
    await exporter.get("/targets/t%20one/live")
    before = resources()
    for _ in range(200):
        engine.work()
        exporter.clock.now += 1.0
        exporter.service.lag.turned_at = exporter.clock.now
        assert (await _post(exporter, "/api/v1/targets/t%20one/proof"))[0] == 200
        assert (await exporter.get("/targets/t%20one/live"))[0] == 200
    after = resources()
    assert after[0] <= before[0] + 1
    assert after[1] <= before[1] + 1
