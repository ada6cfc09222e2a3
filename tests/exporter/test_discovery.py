"""Targets from files, URLs and Docker labels; vanishing ones go after a grace, unreadable sources keep what they said."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from exporter.virtual_time import VirtualClock
from llm_common.guard import Guard
from llm_exporter.config import Config
from llm_exporter.config_check import try_sources
from llm_exporter.discovered import SourceError, Template
from llm_exporter.discovery import Discoveries
from llm_exporter.discovery_config import Discovery, DockerSd, FileSd, HttpSd
from llm_exporter.discovery_sources import groups, read_docker
from llm_exporter.engines.custom import Described
from llm_exporter.fleet import merged
from llm_exporter.scrape import Scraper
from llm_exporter.target_config import Target

PLAIN = Template()


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
        return sorted(self.found())

    def found(self) -> dict[str, Target]:
        return {target.name: target for found in self.discoveries.targets().values() for target in found}


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
    found = watched.found()
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
        web.Response(text="[" * 100_000),
        web.Response(text=""),
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
        for _ in range(len(answers)):
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
        ([{"target": ["a:1"]}], "did you mean targets?"),
        ([{"targets": ["a b:1"]}], "names no host"),
        ([{"targets": "a:1"}], "must be a list"),
        ([{"targets": ["a:1"], "labels": {"__engine__": "vlm"}}], "is not one of auto"),
        ([{"targets": ["a:1"], "labels": {"__name__": "a b"}}], "is no name of a target"),
        ([{"targets": ["a:1"], "labels": {"__scheme__": "ftp"}}], "only http and https"),
        ([{"targets": ["a:99999"]}], "not a URL"),
        ([{"targets": ["a:1"], "labels": {"__metrics_path__": "@evil/m"}}], "begins with /"),
        (["a:1"], "must be a mapping"),
    ],
)
def test_what_is_wrong_in_a_list_is_said_with_its_place_and_hides_nothing_else(document: list[object], words: str) -> None:
    found = groups([*document, {"targets": ["good:1"]}], "x.json", PLAIN)
    assert [target.name for target in found.targets] == ["good:1"]
    assert not found.whole, "what is missing may be the one that is written wrongly"
    (problem,) = found.problems
    assert problem.startswith("x.json[0]")
    assert words in problem


def test_what_is_no_list_is_no_answer() -> None:
    with pytest.raises(SourceError, match=r"x\.json: must be a list of target groups"):
        groups({"targets": []}, "x.json", PLAIN)


def test_groups_may_be_empty_as_prometheus_allows() -> None:
    found = groups([{}, {"labels": {"a": "b"}}, {"targets": None, "labels": None}], "x.json", PLAIN)
    assert (found.targets, found.problems, found.whole) == ([], [], True)


def test_labels_that_the_exporter_or_prometheus_sets_itself_get_the_prefix_that_prometheus_gives() -> None:
    """A file that a Prometheus reads too has `job` in it; that must not cost the targets."""
    labels = {"job": "llm", "target": "x", "model": "m", "app.kubernetes.io/name": "n", "1st": "f", "__meta_x": "gone",
              "team": "ml", "app_kubernetes_io_name": "second"}  # fmt: skip
    (target,) = groups([{"targets": ["a:1"], "labels": labels}], "x", PLAIN).targets
    assert target.labels == {
        "exported_job": "llm", "exported_target": "x", "exported_model": "m", "app_kubernetes_io_name": "n", "_1st": "f",
        "team": "ml",
    }  # fmt: skip


def test_a_discovery_may_name_an_engine_of_the_configuration() -> None:
    own = Described("mine", ("steps",), "running", ("waiting",))
    (target,) = groups(
        [{"targets": ["a:1"], "labels": {"__engine__": "mine"}}], "x", Template(described={"mine": own})
    ).targets
    assert (target.engine, target.described) == ("mine", own)


async def test_a_file_that_is_broken_or_gone_touches_no_other_file(watched: Watched, tmp_path: Path) -> None:
    one, two = tmp_path / "1.json", tmp_path / "2.yml"
    one.write_text('[\n\t{"targets": ["a:1", "b:1"], "labels": {"x": "\\ud83d\\ude00"}}\n]')
    two.write_text("- targets: [c:1]\n")
    await watched.discoveries.configure(config(file_sd=(FileSd((f"{tmp_path}/*",), refresh=10.0),)))
    (name,) = watched.up
    assert (watched.names(), watched.up[name]) == (["a:1", "b:1", "c:1"], True)
    assert watched.found()["a:1"].labels == {"x": "😀"}
    one.write_text('[{"targets": ["a:1"')
    two.write_text("- targets: [c:1, d:1]\n")
    await watched.clock.advance(200.0)
    assert (watched.names(), watched.up[name]) == (["a:1", "b:1", "c:1", "d:1"], False)
    one.write_text("")
    await watched.clock.advance(200.0)
    assert (watched.names(), watched.up[name]) == (["a:1", "b:1", "c:1", "d:1"], False)
    one.unlink()
    await watched.clock.advance(10.0)
    assert (watched.names(), watched.up[name]) == (["a:1", "b:1", "c:1", "d:1"], True)
    await watched.clock.advance(60.0)
    assert watched.names() == ["c:1", "d:1"]


async def test_a_named_file_that_is_not_there_is_said_and_its_targets_go_after_the_grace(
    watched: Watched, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.yml"
    await watched.discoveries.configure(config(file_sd=(FileSd((str(path), f"{tmp_path}/*.json"), refresh=10.0),)))
    (name,) = watched.up
    assert watched.up[name] is False
    assert f"{path}: there is no such file" in caplog.text
    path.write_text("- targets: [a:1]\n")
    await watched.clock.advance(10.0)
    assert (watched.names(), watched.up[name]) == (["a:1"], True)
    path.unlink()
    await watched.clock.advance(60.0)
    assert (watched.names(), watched.up[name]) == (["a:1"], False)
    await watched.clock.advance(20.0)
    assert watched.names() == []
    assert caplog.text.count("there is no such file") == 2, "what stays wrong is not said again at every reading"


async def test_a_target_has_its_whole_grace_after_a_time_in_which_nobody_knew(watched: Watched, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('[{"targets": ["a:1", "b:1"]}]')
    await watched.discoveries.configure(config(file_sd=(FileSd((str(path),), refresh=10.0),)))
    path.write_text("[")
    await watched.clock.advance(600.0)
    path.write_text('[{"targets": ["a:1"]}]')
    await watched.clock.advance(60.0)
    assert watched.names() == ["a:1", "b:1"]
    await watched.clock.advance(20.0)
    assert watched.names() == ["a:1"]


async def test_an_address_that_another_target_has_now_is_not_watched_under_the_old_name(
    watched: Watched, tmp_path: Path
) -> None:
    """Addresses of containers and pods are given to the next one at once, long before a grace is over."""
    path = tmp_path / "t.yml"
    path.write_text("- {targets: ['10.0.0.2:80'], labels: {__name__: old}}\n")
    await watched.discoveries.configure(config(file_sd=(FileSd((str(path),), refresh=10.0),)))
    path.write_text("- {targets: ['10.0.0.2:80'], labels: {__name__: new}}\n")
    await watched.clock.advance(10.0)
    assert watched.names() == ["new"]


async def test_of_two_with_one_name_the_one_that_is_watched_stays(
    watched: Watched, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.yml"
    one, two = ({"targets": [f"10.0.0.{n}:80"], "labels": {"__name__": "chat"}} for n in (1, 2))
    path.write_text(json.dumps([two]))
    await watched.discoveries.configure(config(file_sd=(FileSd((str(path),), refresh=10.0),)))
    (name,) = watched.up
    path.write_text(json.dumps([one, two]))
    await watched.clock.advance(10.0)
    assert watched.found()["chat"].url == "http://10.0.0.2:80"
    assert watched.up[name] is False
    assert "'chat' is the name of http://10.0.0.1:80 too" in caplog.text
    path.write_text(json.dumps([one]))
    await watched.clock.advance(10.0)
    assert (watched.found()["chat"].url, watched.up[name]) == ("http://10.0.0.1:80", True)


async def test_sources_whose_names_are_alike_are_both_read_and_no_name_has_a_secret(
    watched: Watched, tmp_path: Path
) -> None:
    path = tmp_path / "t.json"
    path.write_text('[{"targets": ["a:1"]}]')
    hidden = HttpSd("http://user:pass@127.0.0.1:1/sd?token=abc&team=a@b")
    await watched.discoveries.configure(
        config(
            file_sd=(FileSd((str(path),)), FileSd((str(path),), 5.0)),
            http_sd=(hidden,),
            docker=(DockerSd("tcp://u:p@127.0.0.1:1"), DockerSd("tcp://u:p@127.0.0.1:1", network="x")),
        )
    )
    assert list(watched.up) == [
        f"file_sd {path}", f"file_sd {path} (2)", "http_sd http://127.0.0.1:1/sd", "docker tcp://127.0.0.1:1",
        "docker tcp://127.0.0.1:1 (2)",
    ]  # fmt: skip


async def test_config_check_says_what_every_source_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "t.json"
    path.write_text('[{"targets": ["a:1", "b:1"]}]')
    lines = await try_sources(config(file_sd=(FileSd((str(path),)),), http_sd=(HttpSd("http://127.0.0.1:1/sd"),)))
    assert lines == [
        f"file_sd {path}: 2 targets",
        "http_sd http://127.0.0.1:1/sd: 0 targets; not all of it can be used",
    ]
    assert "127.0.0.1 port 1: refused" in caplog.text


def test_a_configured_name_wins_over_a_discovered_one() -> None:
    configured = [Target("a", "http://a:1")]
    found = {"file_sd x": [Target("a", "http://other:1"), Target("b", "http://b:1")], "docker": [Target("b", "http://c:1")]}
    assert [(t.name, t.url, t.source) for t in merged(configured, found)] == [
        ("a", "http://a:1", "config"),
        ("b", "http://b:1", "file_sd x"),
    ]


def container(labels: dict[str, str], networks: dict[str, dict[str, str]]) -> dict[str, object]:
    return {"Id": "f" * 64, "Names": ["/engine-1"], "Labels": labels, "NetworkSettings": {"Networks": networks}}


async def test_labelled_containers_become_targets_and_a_wrong_one_hides_no_other(tmp_path: Path) -> None:
    team = {"stuckproof.target": "one", "stuckproof.team": "x"}
    other = {"stuckproof.target": "two", "stuckproof.port": "9", "stuckproof.engine": "llamacpp"}
    listed = [
        container(team, {"net": {"IPAddress": "10.0.0.2"}}),
        container(other, {"host": {"IPAddress": ""}}),
        container({"stuckproof.target": "thr ee"}, {"net": {"IPAddress": "10.0.0.4"}}),
        container({"stuckproof.target": "four", "stuckproof.port": "http"}, {"net": {"IPAddress": "10.0.0.5"}}),
        container({"stuckproof.target": "five"}, {"none": {}}),
        container({"stuckproof.target": "six", "stuckproof.engine": "nope"}, {"net": {"IPAddress": "10.0.0.6"}}),
        container({"stuckproof.target": "seven", "stuckproof.port": "80000"}, {"net": {"IPAddress": "10.0.0.7"}}),
        container({"stuckproof.target": "true"}, {"net": {"IPAddress": "", "GlobalIPv6Address": "fd00::8"}}),
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
        found = await read_docker(source, PLAIN)
        with pytest.raises(SourceError, match="HTTP 403"):
            await read_docker(source, PLAIN)
    finally:
        await runner.cleanup()
    assert filters[0] == {"label": ["stuckproof.target"], "status": ["running"]}
    assert [(t.name, t.url, t.engine, dict(t.labels)) for t in found.targets] == [
        ("one", "http://10.0.0.2:8000", "auto", {"team": "x"}),
        ("two", "http://127.0.0.1:9", "llamacpp", {}),
        ("engine-1", "http://[fd00::8]:8000", "auto", {}),
    ]
    assert [problem.partition(": ")[0] for problem in found.problems] == ["container ffffffffffff"] * 5
    assert found.whole


async def test_a_docker_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"Docker at unix://.*none\.sock: No such file or directory"):
        await read_docker(DockerSd(f"unix://{tmp_path}/none.sock"), PLAIN)
