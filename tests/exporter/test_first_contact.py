"""What a server is asked before and after it is known, and what it must never be asked; the servers are real HTTP."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from exporter.parts import parts
from exporter.virtual_time import VirtualClock, until
from llm_common.guard import Guard
from llm_exporter.config import Config
from llm_exporter.config_check import try_targets
from llm_exporter.engines.custom import Described
from llm_exporter.monitor import Monitor
from llm_exporter.scrape import Scraper
from llm_exporter.target_config import Canary, Target, TargetOptions

PAGES = Path(__file__).parents[1] / "pages"
TEXT = "text/plain; version=0.0.4"


def page(name: str) -> tuple[int, str, str]:
    return 200, TEXT, (PAGES / f"{name}.prom").read_text()


def says(answer: object, status: int = 200) -> tuple[int, str, str]:
    return status, "application/json", json.dumps(answer)


def models(name: str, owner: str = "somebody") -> tuple[int, str, str]:
    return says({"object": "list", "data": [{"id": name, "owned_by": owner}]})


@dataclass
class Server:
    """Answers by path; whatever else is asked gets the answer of ``""``, or 404. `asked` counts method and path."""

    answers: Mapping[str, tuple[int, str, str]]
    asked: Counter[str] = field(default_factory=Counter)
    bodies: list[object] = field(default_factory=list)
    base: str = ""


@asynccontextmanager
async def serving(answers: Mapping[str, tuple[int, str, str]]) -> AsyncIterator[Server]:
    server = Server(answers)

    async def answer(request: web.Request) -> web.Response:
        server.asked[f"{request.method} {request.path}"] += 1
        if request.method == "POST":
            server.bodies.append(await request.json())
        nowhere = server.answers.get("", says({"detail": "Not Found"}, 404))
        status, kind, body = server.answers.get(request.path, nowhere)
        return web.Response(status=status, body=body.encode(), headers={"Content-Type": kind})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    http = TestServer(app)
    await http.start_server()
    server.base = str(http.make_url("")).rstrip("/")
    try:
        yield server
    finally:
        await http.close()


@dataclass
class Bench:
    clock: VirtualClock
    scraper: Scraper
    guard: Guard

    def monitor(
        self, server: Server, engine: str = "auto", *, without_metrics: bool = False, described: Described | None = None
    ) -> Monitor:
        canary = Canary(timeout=2.0, every=60.0, without_metrics=without_metrics)
        options = TargetOptions(interval=1.0, timeout=1.0, start_grace=0.0, canary=canary)
        target = Target(name="t", url=server.base, engine=engine, options=options, described=described)
        return Monitor(target, self.scraper, self.clock, self.guard)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with parts() as made:
        yield Bench(*made)


LITELLM = {
    "/health": says({"healthy_endpoints": ["every model was called and paid for"]}),
    "/health/liveliness": says("I'm alive!"),
    "/v1/models": models("gpt"),
}
ROUTERS = {
    "without metrics": LITELLM,
    "metrics behind a key": {**LITELLM, "/metrics": says({"error": "no key"}, 401), "/v1/models": says({}, 401)},
    "metrics before the first request": {**LITELLM, "/metrics": (200, TEXT, "python_gc_objects_collected_total 3\n")},
    "its own series": {**LITELLM, "/metrics": page("litellm")},
    "production-stack": {**LITELLM, "/metrics": page("vllm-router"), "/health/liveliness": says({}, 404)},
    "slow to say that it lives": {**LITELLM, "/health/liveliness": says("", 503), "/metrics": page("litellm")},
}


@pytest.mark.parametrize("answers", ROUTERS.values(), ids=ROUTERS.keys())
async def test_a_proxy_is_found_out_without_its_health_ever_being_asked(
    bench: Bench, answers: Mapping[str, tuple[int, str, str]]
) -> None:
    async with serving(answers) as server:
        monitor = bench.monitor(server, without_metrics=True)
        for _ in range(4):
            snapshot = await monitor.observe()
        assert snapshot.kind == "proxy"
        assert snapshot.verdict.state == "unknown"
        assert "a proxy, no engine" in snapshot.verdict.reason
        assert server.asked["GET /health"] == 0
        assert server.asked["GET /v1/models"] >= 3
        assert server.asked["GET /metrics"] <= 1
        assert not server.bodies


async def test_a_proxy_that_takes_the_place_of_a_bare_server_is_found_out_too(bench: Bench) -> None:
    async with serving({"/v1/models": models("m"), "/health": says("")}) as server:
        monitor = bench.monitor(server)
        for _ in range(2):
            assert (await monitor.observe()).kind == "openai"
        server.answers = {"/v1/models": (200, "text/plain", "x" * (17 << 20))}
        await monitor.observe()
        before = server.asked["GET /health"]
        server.answers = LITELLM
        for _ in range(3):
            snapshot = await monitor.observe()
        assert snapshot.kind == "proxy"
        assert server.asked["GET /health"] == before


@pytest.mark.parametrize("body", ["ok", "", (PAGES / "vllm-0.13.prom").read_text()], ids=["ok", "empty", "page"])
async def test_a_server_that_answers_every_path_is_still_read_at_its_page(bench: Bench, body: str) -> None:
    anything = (200, TEXT, body)
    async with serving({"/metrics": page("vllm-0.13"), "": anything}) as server:
        monitor = bench.monitor(server)
        for _ in range(2):
            snapshot = await monitor.observe()
        assert (snapshot.kind, snapshot.verdict.state) == ("vllm", "idle")


async def test_a_page_for_people_that_answers_every_path_is_no_proxy(bench: Bench) -> None:
    html = (200, "text/html", "<html>" + "we are alive " * 50 + "</html>")
    async with serving({"/health/liveliness": html, "/metrics": html, "/health": html}) as server:
        snapshot = await bench.monitor(server).observe()
    assert snapshot.kind == ""
    assert "no series of an engine" in snapshot.verdict.reason or "no samples" in snapshot.verdict.reason


async def test_trtllm_is_found_by_its_text_and_its_json_is_never_taken_from_its_owner(bench: Bench) -> None:
    answers = {
        "/metrics": says([{"iter": 1}]), "/prometheus/metrics": page("trtllm"), "/version": says({"version": "1.2.0"}),
        "/v1/models": models("trt"), "/health": says(""), "/v1/completions": says({"choices": [{"text": "x"}]}),
    }  # fmt: skip
    async with serving(answers) as server:
        monitor = bench.monitor(server)
        for _ in range(3):
            snapshot = await monitor.observe()
        await until(lambda: monitor.snapshot.verified_at is not None, "a canary that names the model was answered")
        assert (snapshot.kind, snapshot.version, snapshot.model) == ("trtllm", "1.2.0", "trt")
        assert server.asked["GET /metrics"] == 0
        assert server.bodies == [{"model": "trt", "prompt": [1], "max_tokens": 1, "temperature": 0, "stream": False}]


@pytest.mark.parametrize("iterations", [[], [{"iter": 1}, {"iter": 2}]])
async def test_trtllm_without_the_text_is_asked_for_its_json_once_and_told_the_mend(
    bench: Bench, iterations: list[object]
) -> None:
    async with serving({"/metrics": says(iterations), "/health": says("")}) as server:
        monitor = bench.monitor(server)
        for _ in range(4):
            snapshot = await monitor.observe()
            assert snapshot.verdict.state == "unknown"
            assert "return_perf_metrics" in snapshot.verdict.reason
        assert snapshot.kind == "trtllm"
        assert server.asked["GET /metrics"] == 1


OWN_CANARIES = [
    ("tgi-3", {"/generate": says({"generated_text": "x"})}, "POST /generate"),
    ("tei", {"/embed": says([[0.1]])}, "POST /embed"),
    ("sglang-0.5.23", {"/health_generate": says("")}, "GET /health_generate"),
]


@pytest.mark.parametrize(("name", "answers", "asked"), OWN_CANARIES)
async def test_engines_whose_canary_names_no_model_are_verified_by_it(
    bench: Bench, name: str, answers: dict[str, tuple[int, str, str]], asked: str
) -> None:
    told = {"/metrics": page(name), "/health": says(""), "/info": says({"model_id": "bge", "version": "1.5"}), **answers}
    async with serving(told) as server:
        monitor = bench.monitor(server)
        await monitor.observe()
        await until(lambda: monitor.snapshot.verified_at is not None, "a canary of its own was answered")
        assert server.asked[asked] == 1
        if name != "sglang-0.5.23":
            assert (monitor.snapshot.model, monitor.snapshot.version) == ("bge", "1.5")


async def test_ollamas_canary_asks_a_model_that_is_loaded(bench: Bench) -> None:
    answers = {
        "/api/version": says({"version": "0.9"}), "/api/ps": says({"models": [{"name": "llama3"}, {"name": "other"}]}),
        "/api/generate": says({"response": "x", "done": True}),
    }  # fmt: skip
    async with serving(answers) as server:
        monitor = bench.monitor(server, without_metrics=True)
        await monitor.observe()
        await until(lambda: monitor.snapshot.verdict.state == "idle", "the canary was answered")
        assert [body["model"] for body in server.bodies if isinstance(body, dict)] == ["llama3"]


MENDS: list[tuple[str, Mapping[str, tuple[int, str, str]], str]] = [
    ("SGLang without metrics", {"/v1/models": models("m", "sglang"), "/health": says("")}, "SGLang with --enable-metrics"),
    ("TabbyAPI with a key", {"/v1/models": says({}, 401), "/health": says({"status": "healthy"})}, "bearer_token_file"),
    ("MLX-LM", {"/v1/models": models("m"), "/health": says({"status": "ok"})}, "canary.without_metrics"),
    ("LMDeploy with a key", {"/metrics": says({}, 401), "/health": says({"status": "healthy"})}, "bearer_token_file"),
]


@pytest.mark.parametrize(("answers", "mend"), [case[1:] for case in MENDS], ids=[case[0] for case in MENDS])
async def test_the_reason_names_the_mend_from_the_first_look_on(
    bench: Bench, answers: Mapping[str, tuple[int, str, str]], mend: str
) -> None:
    async with serving(answers) as server:
        monitor = bench.monitor(server)
        for _ in range(3):
            snapshot = await monitor.observe()
            assert snapshot.verdict.state == "unknown"
            assert mend in snapshot.verdict.reason


QUESTIONS = [
    ("/v1/completions", {"prompt": "a"}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
]


@pytest.mark.parametrize(("path", "words"), QUESTIONS)
async def test_an_engine_that_the_operator_described_is_asked_as_its_path_wants(
    bench: Bench, path: str, words: dict[str, object]
) -> None:
    described = Described("mine", ("my_steps",), "my_running", (), canary_path=path)
    page = (200, TEXT, "my_steps 5\nmy_running 0\n")
    async with serving({"/metrics": page, "/v1/models": models("m"), path: says({"choices": [{"text": "x"}]})}) as server:
        monitor = bench.monitor(server, "mine", described=described)
        await monitor.observe()
        await until(lambda: monitor.snapshot.verified_at is not None, "its canary was answered")
        assert server.bodies == [{"model": "m", "max_tokens": 1, "temperature": 0, "stream": False, **words}]


CHECKED = [
    (Described("mine", ("my_steps",), "my_running", (), canary_path="/v1/completions"), "canary: /v1/completions is there"),
    (Described("mine", ("my_steps",), "my_running", ()), "no canary"),
]


@pytest.mark.parametrize(("described", "words"), CHECKED)
async def test_the_check_of_a_configuration_knows_the_engines_that_it_describes(described: Described, words: str) -> None:
    answers = {
        "/metrics": (200, TEXT, "my_steps 5\nmy_running 0\n"),
        "/v1/models": models("m"),
        "/v1/completions": says({}, 422),
    }
    async with serving(answers) as server:
        target = Target(name="t", url=server.base, engine="mine", described=described)
        lines = await try_targets(Config(targets=(target,)))
    assert [line.rpartition("; ")[2] for line in lines] == [words]


async def test_a_server_that_may_take_no_token_ids_is_asked_in_words(bench: Bench) -> None:
    async with serving({"/v1/models": models("m"), "/v1/completions": says({"choices": [{"text": "x"}]})}) as server:
        monitor = bench.monitor(server, without_metrics=True)
        await monitor.observe()
        await until(lambda: monitor.snapshot.verdict.state == "idle", "the canary was answered")
        assert [body["prompt"] for body in server.bodies if isinstance(body, dict)] == ["a"]


async def test_sglang_without_metrics_is_not_made_to_generate_at_every_look(bench: Bench) -> None:
    async with serving({"/v1/models": models("m", "sglang"), "/health": says("")}) as server:
        monitor = bench.monitor(server)
        for _ in range(5):
            await monitor.observe()
        assert server.asked["GET /health"] == 1


async def test_what_a_server_calls_itself_does_not_fill_our_pages(bench: Bench) -> None:
    endless = "x" * 100_000
    answers = {"/metrics": page("tgi-3"), "/info": says({"model_id": endless, "version": endless})}
    async with serving(answers) as server:
        monitor = bench.monitor(server)
        for _ in range(2):
            snapshot = await monitor.observe()
        assert snapshot.model == snapshot.version == endless[:300]


async def test_what_cannot_be_asked_by_a_canary_still_names_its_mend(bench: Bench) -> None:
    async with serving({"/metrics": says({}, 401)}) as server:
        monitor = bench.monitor(server, without_metrics=True)
        for _ in range(3):
            snapshot = await monitor.observe()
        assert "bearer_token_file" in snapshot.verdict.reason
