"""The simulated page has the families of the recorded ones: same names, order, types, helps, labels, buckets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from demo.recorded import Recording
from demo.sim_server import SimServer, until
from llm_sim.http_metrics import CONTENT_TYPE


@dataclass(frozen=True)
class Shape:
    """What of a family does not depend on the traffic."""

    kind: str
    help: str
    label_names: frozenset[frozenset[str]]
    label_values: frozenset[tuple[str, str]]
    buckets: tuple[str, ...]


FREE_LABELS = {"model_name", "handler", "method", "status", "patchlevel", "version", "minor"}


def shapes(page: str) -> dict[str, Shape]:
    return {
        family.name: Shape(
            family.type,
            family.documentation,
            frozenset(frozenset(sample.labels) for sample in family.samples),
            frozenset(
                item
                for sample in family.samples
                for item in sample.labels.items()
                if item[0] not in FREE_LABELS and family.name != "vllm:cache_config_info"
            ),
            tuple(dict.fromkeys(s.labels["le"] for s in family.samples if s.name.endswith("_bucket"))),
        )
        for family in text_string_to_metric_families(page)
        if family.samples  # an unused labelled family is a HELP line there, and nothing in vLLM's multiprocess mode
    }


@pytest.mark.parametrize(
    ("recording", "options"),
    [("vllm-idle-busy-idle", ()), ("vllm-data-parallel-startup", ("--data-parallel-size", "2"))],
)
async def test_families_equal_those_of_the_real_server(tmp_path: Path, recording: str, options: tuple[str, ...]) -> None:
    real = Recording.load(recording).last
    async with SimServer(tmp_path, *options) as server:
        if recording == "vllm-idle-busy-idle":  # the HTTP families appear with the first request, there and here
            await server.ask(8, 2)
        simulated = await server.page()
    expected, found = shapes(real), shapes(simulated)
    if not options:
        assert list(found) == list(expected)
    assert found.keys() == expected.keys()
    for name, shape in expected.items():
        assert found[name] == shape, name


async def test_content_type_and_size_are_those_of_a_real_page(tmp_path: Path) -> None:
    async with (
        SimServer(tmp_path) as server,
        server.session.get(f"{server.url}/metrics", headers={"Accept": "application/openmetrics-text"}) as answer,
    ):
        body = await answer.read()
        assert answer.headers["Content-Type"] == CONTENT_TYPE
    assert 55_000 < len(body) < 75_000


async def test_a_restarted_server_has_another_start_time_and_counters_at_zero(tmp_path: Path) -> None:
    async with SimServer(tmp_path) as server:
        await server.ask(8, 2)
        before = await until(server.page, lambda page: "generation_tokens_total" in page)
    async with SimServer(tmp_path) as server:
        after = await server.page()

    def created(page: str) -> float:
        return float(next(x for x in page.splitlines() if x.startswith("vllm:generation_tokens_created")).split()[-1])

    assert created(after) > created(before)
    assert "process_start_time_seconds" in after
