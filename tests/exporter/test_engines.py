"""Each adapter reads its versions' pages: what it is, what it holds, whether a prefill can be seen, how patient to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_exporter.engines import Known, Look, Page, by_kind, detect, engines
from llm_exporter.engines.custom import Described, adapter
from llm_exporter.engines.llamacpp import printed_step
from llm_exporter.engines.shared import version_tuple
from llm_exporter.exposition import read
from llm_exporter.judge import Settings
from llm_exporter.judge.bounds import bound_for
from llm_exporter.judge.watch import begin
from llm_exporter.pipeline import Mind, step

PAGES = Path(__file__).parents[1] / "pages"
BLIND, SIGHTED = 900.0, None

# page, version, kind, bound in seconds, sighted
FACTS = [
    ("vllm-0.6.6", None, "vllm", 300, True),
    ("vllm-0.8.5", "0.8.5", "vllm", 900, False),
    ("vllm-0.8.5", None, "vllm", 900, False),
    ("vllm-0.9.2", "0.9.2", "vllm", 900, False),
    ("vllm-0.9.2", "0.10.1.1", "vllm", 900, False),
    ("vllm-0.10.2", None, "vllm", 900, False),
    ("vllm-0.10.2", "0.10.2", "vllm", 300, True),
    ("vllm-0.11.2", None, "vllm", 300, True),
    ("vllm-0.13", "0.13.0", "vllm", 300, True),
    ("vllm-0.20", "0.20.2+cu128", "vllm", 300, True),
    ("vllm-0.33", "0.33.0", "vllm", 300, True),
    ("aphrodite-0.24", None, "aphrodite", 300, True),
    ("ray-serve", None, "ray-serve", 300, True),
    ("dynamo-vllm", None, "dynamo", 300, True),
    ("llamacpp", None, "llamacpp", 300, True),
    ("llamacpp-old", None, "llamacpp", 300, True),
    ("sglang-0.4", None, "sglang", 900, False),
    ("sglang-0.5.8", None, "sglang", 480, True),
    ("sglang-0.5.23", None, "sglang", 480, True),
    ("tgi-3", None, "tgi", 300, True),
    ("tei", None, "tei", 300, True),
    ("triton", None, "triton", 900, False),
    ("triton-trtllm", None, "triton", 300, True),
    ("lmdeploy", None, "lmdeploy", 300, True),
    ("trtllm", None, "trtllm", 900, False),
]


@pytest.mark.parametrize(("page", "version", "kind", "bound", "sighted"), FACTS)
def test_what_is_known_of_an_engine_and_version(
    page: str, version: str | None, kind: str, bound: float, sighted: bool
) -> None:
    body = (PAGES / f"{page}.prom").read_text()
    engine = detect(read(body))
    assert engine is not None
    assert engine.kind == kind
    samples, known = read(body, engine.series), Known(version=version)
    facts = engine.facts(samples, known)
    reading = engine.read(samples, Look(0, 0, Page(status=200, body=body)), known)
    assert facts.sighted is sighted
    assert len(reading.lanes) == 1
    lane = reading.lanes[0]
    assert not lane.missing
    assert (lane.running, lane.waiting) == (0, 0)
    assert bound_for(facts, Settings(), begin(lane, 0.0, held=0.0)).seconds == bound
    assert facts.sight_why


def test_every_adapter_that_reads_metrics_has_a_page_and_its_row() -> None:
    assert {kind for _, _, kind, _, _ in FACTS} == {engine.kind for engine in engines() if engine.series}


@pytest.mark.parametrize("page", sorted(p.stem for p in PAGES.glob("*.prom")))
def test_reading_the_needed_series_is_enough(page: str) -> None:
    """An adapter that needs a series which it does not list would be blind in production, where only those are read."""
    body = (PAGES / f"{page}.prom").read_text()
    engine = detect(read(body))
    assert engine is not None, "every page fixture belongs to an adapter"
    if engine.metrics_path is None:
        return
    look = Look(0, 0, Page(status=200, body=body))
    assert engine.read(read(body), look, Known()) == engine.read(read(body, engine.series), look, Known())


@pytest.mark.parametrize("page", ["vllm-router", "litellm"])
def test_routers_are_no_engines(page: str) -> None:
    engine = detect(read((PAGES / f"{page}.prom").read_text()))
    assert engine is by_kind("proxy")
    assert engine is not None
    assert engine.canary is None
    assert engine.look_path == "/v1/models"


def test_no_adapter_ever_asks_the_destructive_or_costly_endpoints() -> None:
    forbidden = {
        ("trtllm", "/metrics"),
        ("proxy", "/health"),
        ("proxy", "/metrics"),
        ("llamacpp", "/slots"),
        ("dynamo", "/live"),
    }
    for engine in engines():
        asked = {engine.look_path, engine.health_path, *engine.each_look, *engine.once}
        assert not {(engine.kind, path) for path in asked} & forbidden


def test_kinds_are_unique() -> None:
    kinds = [engine.kind for engine in engines()]
    assert len(kinds) == len(set(kinds))
    assert {"vllm", "llamacpp", "sglang", "tgi", "tei", "ollama", "proxy", "openai"} <= set(kinds)


@pytest.mark.parametrize(
    ("value", "step_seen"),
    [(0, 1), (999_999, 1), (1e6, 10), (1.23457e6, 10), (1.2e7, 100), (9.9e8, 1000)],
)
def test_printed_resolution(value: float, step_seen: float) -> None:
    assert printed_step(value) == step_seen


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0.10.1.1", (0, 10, 1, 1)),
        ("v0.9.2rc1", (0, 9, 2)),
        ("0.32.0+cpu", (0, 32, 0)),
        ("dev", None),
        ("", None),
        (None, None),
    ],
)
def test_versions_compare(text: str | None, numbers: tuple[int, ...] | None) -> None:
    assert version_tuple(text) == numbers


def test_an_operator_describes_an_engine() -> None:
    engine = adapter(Described("mine", ("my_steps_total",), "my_running", ("my_queue", "my_other_queue"), blind=False))
    mind = Mind(engine=engine, fixed=True)
    body = "my_steps_total 5\nmy_running 1\nmy_queue 2\nmy_other_queue 3\n"
    _, seen = step(mind, Look(0.0, 1e9, Page(status=200, body=body), None), Settings())
    assert seen.verdict.state == "busy"
    assert seen.verdict.held == 6
    _, seen = step(mind, Look(0.0, 1e9, Page(status=200, body="my_steps_total 5\nmy_running 1\n"), None), Settings())
    assert seen.verdict.state == "unknown"
    assert "my_queue" in seen.verdict.reason


def test_an_operators_engine_has_the_lanes_that_its_labels_tell_apart() -> None:
    described = Described("mine", ("my_steps_total",), "my_running", ("my_queue",), lane_labels=("shard",))
    body = "".join(
        f'my_steps_total{{shard="{n}"}} 5\nmy_running{{shard="{n}"}} {n}\nmy_queue{{shard="{n}"}} 0\n' for n in (0, 1)
    )
    mind = Mind(engine=adapter(described), fixed=True)
    _, seen = step(mind, Look(0.0, 1e9, Page(status=200, body=body), None), Settings())
    assert {lane.lane: (lane.state, lane.held) for lane in seen.verdict.lanes} == {"0": ("idle", 0), "1": ("busy", 1)}


def test_a_server_without_metrics_is_judged_by_canary_only_if_asked() -> None:
    models = Page(status=200, body='{"data": [{"id": "m"}]}')
    look = Look(0.0, 1e9, models, Page(status=200))
    mind = Mind.of("openai")
    _, seen = step(mind, look, Settings())
    assert seen.verdict.state == "unknown"
    assert seen.verdict.wants is None
    _, seen = step(mind, look, Settings(without_metrics=True))
    assert seen.verdict.wants is not None


def test_ollama_is_told_by_its_own_endpoint_and_asleep_when_nothing_is_loaded() -> None:
    mind = Mind.of("auto")
    first = Look(0.0, 1e9, Page(status=404), None, {"/api/version": Page(status=200, body='{"version":"0.5"}')})
    mind, _ = step(mind, first, Settings())
    assert mind.engine is by_kind("ollama")
    _, seen = step(mind, Look(5.0, 1e9 + 5, Page(status=200, body='{"models":[]}')), Settings())
    assert seen.verdict.state == "sleeping"
    _, seen = step(mind, Look(5.0, 1e9 + 5, Page(status=200, body='{"models":[{"name":"llama"}]}')), Settings())
    assert seen.verdict.state == "unknown"
    assert "llama" in seen.verdict.reason


HEALTH_503 = [
    ("vllm-0.13", "0.13.0", "failed"),
    ("vllm-0.8.5", "0.8.5", "idle"),
    ("trtllm", None, "failed"),
    ("tgi-3", None, "idle"),
    ("tei", None, "idle"),
    ("lmdeploy", None, "idle"),
    ("llamacpp", None, "idle"),
]


@pytest.mark.parametrize(("page", "version", "state"), HEALTH_503)
def test_whose_health_proves_death(page: str, version: str | None, state: str) -> None:
    """vLLM's from 0.9.2 and trtllm-serve's; never SGLang's, TGI's, TEI's (it waits for work) or TabbyAPI's (it sticks)."""
    body = (PAGES / f"{page}.prom").read_text()
    mind = Mind.of("auto")
    mind = Mind(known=Known(version=version))
    mind, _ = step(mind, Look(0.0, 1e9, Page(status=200, body=body), Page(status=200)), Settings())
    _, seen = step(mind, Look(5.0, 1e9 + 5, Page(status=200, body=body), Page(status=503)), Settings())
    assert seen.verdict.state == state


def rewritten(page: str, old: str, new: str) -> str:
    return (PAGES / f"{page}.prom").read_text().replace(old, new)


OTHER_SPELLINGS = [
    ("dynamo", "dynamo_component_requests_total 5\n" + rewritten("trtllm", "trtllm_", "trtllm:")),
    ("dynamo", "dynamo_component_requests_total 5\n" + rewritten("trtllm", "x", "x")),
    ("ray-serve", rewritten("ray-serve", "ray_vllm_", "ray_vllm:")),
    ("sglang", rewritten("sglang-0.5.8", "sglang:", "sglang_")),
    ("lmdeploy", rewritten("lmdeploy", "lmdeploy:", "lmdeploy_")),
    ("aphrodite", rewritten("aphrodite-0.24", "aphrodite:", "aphrodite_")),
]


@pytest.mark.parametrize(("kind", "body"), OTHER_SPELLINGS)
def test_other_spellings_are_read_at_every_look_not_only_at_the_first(kind: str, body: str) -> None:
    mind = Mind.of("auto")
    for t in (0.0, 5.0):
        mind, seen = step(mind, Look(t, 1e9 + t, Page(status=200, body=body)), Settings())
        assert mind.engine is by_kind(kind)
        assert seen.verdict.state == "idle"


def held(page: str, change: tuple[str, str] = ("", ""), more: str = "") -> float | None:
    body = rewritten(page, *change) if change[0] else (PAGES / f"{page}.prom").read_text()
    _, seen = step(Mind.of("auto"), Look(0.0, 1e9, Page(status=200, body=body + more)), Settings())
    return seen.verdict.held


def test_what_triton_holds_beyond_its_last_iteration_is_held() -> None:
    series = 'nv_trt_llm_request_metrics{request_type="%s",model="tensorrt_llm",version="1"} %d'
    assert held("triton-trtllm") == 0
    assert held("triton-trtllm", (series % ("active", 0), series % ("active", 3))) == 3
    assert held("triton-trtllm", (series % ("scheduled", 0), series % ("scheduled", 2))) == 2


def test_what_trtllm_schedules_now_is_held_before_its_gauges_show_it() -> None:
    live = 'trtllm_scheduled_batch_size{model_name="m",engine_type="trtllm",rank="%d",pid="7"} %d\n'
    assert held("trtllm", more=live % (0, 0)) == 0
    assert held("trtllm", more=live % (0, 4) + live % (1, 4)) == 4


@pytest.mark.parametrize(
    ("said", "number"),
    [("3", 3), ("1e999", None), ("NaN", None), ("true", None), ('"3"', None), ("[1]", None), ("9" * 400, None)],
)
def test_only_numbers_of_open_requests_are_numbers(said: str, number: float | None) -> None:
    body = (PAGES / "vllm-0.13.prom").read_text()
    load = {"/load": Page(status=200, body=f'{{"server_load": {said}}}')}
    _, seen = step(Mind.of("auto"), Look(0.0, 1e9, Page(status=200, body=body), None, load), Settings())
    assert seen.observation.witness.in_flight == number


def test_json_nested_without_end_is_no_answer() -> None:
    assert Page(status=200, body="[" * 200_000).json() is None


def test_an_operator_describes_an_engine_without_a_queue() -> None:
    mind = Mind.of("mine", Described("mine", ("my_steps_total",), "my_running", ()))
    _, seen = step(mind, Look(0.0, 1e9, Page(status=200, body="my_steps_total 5\nmy_running 2\n")), Settings())
    assert (seen.verdict.state, seen.verdict.held) == ("busy", 2)
