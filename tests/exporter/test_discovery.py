"""Targets from files, URLs and Docker labels; vanishing ones go after a grace, unreadable sources keep what they said."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from exporter.virtual_time import VirtualClock
from llm_common.errors import ConfigError
from llm_common.guard import Guard
from llm_exporter.config import Config, Discovery, DockerSd, FileSd, HttpSd
from llm_exporter.discovery import Discoveries
from llm_exporter.discovery_sources import SourceError, groups, read_docker
from llm_exporter.fleet import merged
from llm_exporter.scrape import Scraper
from llm_exporter.target_config import Patience, Target


class Watched:
    """A discovery with its parts, and how often it said that something changed."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.guard = Guard()
        self.scraper = Scraper()
        self.up: dict[str, bool] = {}
        self.changes = 0
        self.discoveries = Discoveries(self.scraper, self.clock, self.guard, self._changed, self.up)

    async def _changed(self) -> None:
        self.changes += 1

    def names(self) -> list[str]:
        return sorted(target.name for found in self.discoveries.targets().values() for target in found)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    watched = Watched()
    yield watched
    await watched.guard.stop()
    await watched.scraper.close()
    assert watched.guard.healthy


def config(**sources: object) -> Config:
    return Config(discovery=Discovery(grace=60.0, **sources))  # type: ignore[arg-type]


async def test_files_are_followed_and_what_vanishes_goes_after_the_grace(watched: Watched, tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps([{"targets": ["a:8000", "b:8000"], "labels": {"team": "x", "__engine__": "vllm"}}]))
    (tmp_path / "more.yml").write_text(
        "- targets: ['c:1']\n  labels: {__scheme__: https, __name__: see, __metrics_path__: /m}\n"
    )
    sources = FileSd((f"{tmp_path}/*.json", f"{tmp_path}/*.yml"), refresh=10.0)
    await watched.discoveries.configure(config(file_sd=(sources,)))
    assert watched.names() == ["a:8000", "b:8000", "see"]
    found = {target.name: target for group in watched.discoveries.targets().values() for target in group}
    assert (found["a:8000"].url, found["a:8000"].engine, found["a:8000"].labels) == ("http://a:8000", "vllm", {"team": "x"})
    assert (found["see"].url, found["see"].metrics_path) == ("https://c:1", "/m")
    path.write_text(json.dumps([{"targets": ["a:8000", "d:8000"]}]))
    await watched.clock.advance(10.0)
    assert (watched.names(), watched.changes) == (["a:8000", "b:8000", "d:8000", "see"], 1)
    await watched.clock.advance(50.0)
    assert watched.changes == 1
    await watched.clock.advance(20.0)
    assert (watched.names(), watched.changes) == (["a:8000", "d:8000", "see"], 2)


async def test_a_source_that_cannot_be_read_keeps_what_it_said(watched: Watched, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('[{"targets": ["a:1"]}]')
    await watched.discoveries.configure(config(file_sd=(FileSd((str(path),), refresh=10.0),)))
    (name,) = watched.up
    assert watched.up[name] is True
    path.write_text('[{"targets": ["a:1"')
    await watched.clock.advance(300.0)
    assert watched.names() == ["a:1"]
    assert watched.up[name] is False
    path.write_text("[]")
    await watched.clock.advance(10.0)
    assert watched.up[name] is True
    await watched.clock.advance(70.0)
    assert watched.names() == []


async def test_a_url_is_asked_as_prometheus_asks(watched: Watched, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    answers: list[web.Response] = [
        web.json_response([{"targets": ["a:1"], "labels": {"namespace": "n"}}]),
        web.Response(status=500),
        web.Response(text="<html>"),
        web.json_response({"targets": []}),
    ]
    headers = []

    async def listing(request: web.Request) -> web.Response:
        headers.append(request.headers)
        return answers.pop(0)

    app = web.Application()
    app.router.add_get("/sd", listing)
    async with TestServer(app) as server:
        source = HttpSd(str(server.make_url("/sd")), 10.0, str(token))
        await watched.discoveries.configure(config(http_sd=(source,)))
        (name,) = watched.up
        assert watched.names() == ["a:1"]
        assert headers[0]["X-Prometheus-Refresh-Interval-Seconds"] == "10"
        assert headers[0]["Authorization"] == "Bearer secret"
        for _ in range(3):
            await watched.clock.advance(10.0)
            assert watched.up[name] is False
            assert watched.names() == ["a:1"]


async def test_a_reload_keeps_what_a_staying_source_knows_and_ends_the_others(watched: Watched, tmp_path: Path) -> None:
    one, two = tmp_path / "1.json", tmp_path / "2.json"
    one.write_text('[{"targets": ["a:1"]}]')
    two.write_text('[{"targets": ["b:1"]}]')
    stays, goes = FileSd((str(one),), 10.0), FileSd((str(two),), 10.0)
    await watched.discoveries.configure(config(file_sd=(stays, goes)))
    one.write_text("nonsense: [")
    await watched.discoveries.configure(config(file_sd=(stays,)))
    assert watched.names() == ["a:1"]
    assert len(watched.up) == 1
    await watched.clock.settle(1)
    assert watched.clock.sleeping == 1


@pytest.mark.parametrize(
    "document, words",
    [
        ({"targets": []}, "must be a list of target groups"),
        ([{"target": ["a:1"]}], "did you mean targets?"),
        ([{"targets": ["a b:1"]}], "names no host"),
        ([{"targets": ["a:1"], "labels": {"lane": "x"}}], "set by the exporter itself"),
        ([{"targets": ["a:1"], "labels": {"__engine__": "vlm"}}], "is not one of auto"),
    ],
)
def test_what_is_wrong_in_a_list_is_said_with_its_place(document: object, words: str) -> None:
    with pytest.raises(ConfigError, match=r"x\.json") as caught:
        groups(document, "x.json", Patience())
    assert words in str(caught.value)


def test_a_configured_name_wins_over_a_discovered_one() -> None:
    configured = [Target("a", "http://a:1")]
    found = {"file_sd x": [Target("a", "http://other:1"), Target("b", "http://b:1")], "docker": [Target("b", "http://c:1")]}
    assert [(t.name, t.url, t.source) for t in merged(configured, found)] == [
        ("a", "http://a:1", "config"),
        ("b", "http://b:1", "file_sd x"),
    ]


def container(labels: dict[str, str], networks: dict[str, dict[str, str]]) -> dict[str, object]:
    return {"Id": "f" * 64, "Labels": labels, "NetworkSettings": {"Networks": networks}}


async def test_labelled_containers_become_targets_and_a_wrong_one_hides_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    team = {"stuckproof.target": "one", "stuckproof.team": "x"}
    other = {"stuckproof.target": "two", "stuckproof.port": "9", "stuckproof.engine": "llamacpp"}
    listed = [
        container(team, {"net": {"IPAddress": "10.0.0.2"}}),
        container(other, {"host": {"IPAddress": ""}}),
        container({"stuckproof.target": "thr ee"}, {"net": {"IPAddress": "10.0.0.4"}}),
        container({"stuckproof.target": "four", "stuckproof.port": "http"}, {"net": {"IPAddress": "10.0.0.5"}}),
        container({"stuckproof.target": "five"}, {"none": {}}),
        container({"stuckproof.target": "six", "stuckproof.engine": "nope"}, {"net": {"IPAddress": "10.0.0.6"}}),
    ]
    filters = []

    async def containers(request: web.Request) -> web.Response:
        filters.append(json.loads(request.query["filters"]))
        return web.json_response(
            listed if len(filters) == 1 else {"message": "no"}, status=200 if len(filters) == 1 else 403
        )

    app = web.Application()
    app.router.add_get("/containers/json", containers)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "docker.sock")).start()
    source = DockerSd(f"unix://{tmp_path}/docker.sock")
    try:
        found = await read_docker(source, Patience())
        with pytest.raises(SourceError, match="HTTP 403"):
            await read_docker(source, Patience())
    finally:
        await runner.cleanup()
    assert filters[0] == {"label": ["stuckproof.target"], "status": ["running"]}
    assert [(t.name, t.url, t.engine, dict(t.labels)) for t in found] == [
        ("one", "http://10.0.0.2:8000", "auto", {"team": "x"}),
        ("two", "http://127.0.0.1:9", "llamacpp", {}),
    ]
    assert caplog.text.count("a container is not watched") == 4


async def test_a_docker_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"Docker at unix://.*none\.sock"):
        await read_docker(DockerSd(f"unix://{tmp_path}/none.sock"), Patience())
