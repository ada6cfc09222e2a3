"""A page of millions of lines costs its own target time, and no other."""

from __future__ import annotations

import threading

import pytest

from llm_exporter.engines import Look, Page
from llm_exporter.exposition import FEW, read, sketch
from llm_exporter.judge import Settings
from llm_exporter.large_pages import LARGE, off_loop
from llm_exporter.pipeline import LONGEST_LANE, MOST_LANES, Mind, step


@pytest.mark.parametrize(("size", "beside"), [(0, False), (LARGE - 1, False), (LARGE, True)])
async def test_a_large_page_is_worked_on_beside_the_event_loop(size: int, beside: bool) -> None:
    thread = await off_loop("x" * size, threading.get_ident)
    assert (thread != threading.get_ident()) is beside


async def test_what_fails_beside_the_loop_fails_at_its_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        await off_loop("x" * LARGE, lambda: 1 // 0)


def test_a_sketch_has_every_series_and_few_samples_of_each() -> None:
    body = "".join(f'a{{n="{n}"}} {n}\n' for n in range(500)) + "b{broken\n" * 50 + "b NaN\n" * 50 + "b 7\nc 1"
    seen = sketch(body)
    assert seen.get("a") == read(body).get("a")[:FEW]
    assert [sample.value for sample in seen.get("b")] == [7.0]
    assert set(seen.names()) == {"a", "b", "c"}


def lanes(count: int) -> str:
    series = ("iteration_tokens_total_count", "num_requests_running", "num_requests_waiting")
    return "".join(f'vllm:{name}{{engine="{n}",model_name="m"}} 1\n' for n in range(count) for name in series)


@pytest.mark.parametrize(("count", "state"), [(MOST_LANES, "busy"), (MOST_LANES + 1, "unknown")])
def test_a_page_with_more_lanes_than_any_engine_has_is_not_judged(count: int, state: str) -> None:
    _, seen = step(Mind.of("auto"), Look(0.0, 1e9, Page(status=200, body=lanes(count))), Settings())
    assert seen.verdict.state == state
    assert ("more than 1024" in seen.verdict.reason) is (state == "unknown")


@pytest.mark.parametrize(("length", "state"), [(LONGEST_LANE, "busy"), (LONGEST_LANE + 1, "unknown")])
def test_a_rank_with_an_endless_name_is_not_judged(length: int, state: str) -> None:
    body = lanes(1).replace('engine="0"', f'engine="{"x" * length}"')
    _, seen = step(Mind.of("auto"), Look(0.0, 1e9, Page(status=200, body=body)), Settings())
    assert seen.verdict.state == state
