"""What a recording may contain, and what is an error of its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from exporter.cases import PageText
from llm_exporter.clock import SystemClock
from llm_exporter.engines import Known, Look, Page
from llm_exporter.engines.custom import Described
from llm_exporter.judge import Settings
from llm_exporter.recording import Recorder, RecordingError, lines_of
from llm_exporter.replay import replay

PAGES = Path(__file__).parents[1] / "pages"


def look(t: float, page: PageText) -> dict[str, Any]:
    return {"t": t, "unix": 1796100000.0 + t, "metrics": {"status": 200, "seconds": 0.01, "body": page.without([])}}


@pytest.mark.parametrize(
    "record",
    [
        {"t": 0, "metrics": {"status": "x"}},
        {"t": "soon", "metrics": {"error": "x", "kind": "refused"}},
        {"t": 0, "canary": {"seconds": 1}},
        {"t": 0, "about": "0.32.0"},
        {"t": 0, "metrics": {"error": "x", "kind": "refused"}, "witness": {"moon": "full"}},
        {"t": 0, "metrics": {"error": "x", "kind": "refused"}, "loop": {"blocked": 3}},
    ],
)
def test_a_record_that_is_none_is_an_error_and_no_guess(record: dict[str, Any]) -> None:
    with pytest.raises(RecordingError, match=f"t={record['t']} is not of a recording's format"):
        list(replay([record], Settings()))


def test_only_a_last_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"t": 0, "event": "a"}\n{"t": 1, "ev')
    assert [record["t"] for record in lines_of(path)] == [0]
    path.write_text("no recording at all\n")
    with pytest.raises(RecordingError, match="line 1: no JSON"):
        list(lines_of(path))
    path.write_text("")
    assert list(lines_of(path)) == []
    path.write_text('{"t": 0, "event": "a\u2028b\x85c"}\n', encoding="utf-8")
    assert [record["event"] for record in lines_of(path)] == ["a\u2028b\x85c"]


def test_what_is_known_later_holds_from_then_on_and_the_first_from_the_beginning() -> None:
    page = PageText((PAGES / "vllm-0.10.2.prom").read_text())
    records = [
        look(0.0, page),
        {"t": 1.0, "about": {"version": "0.10.1.1"}},
        look(5.0, page),
        {"t": 7.0, "about": {"version": "0.10.2"}},
        look(10.0, page),
    ]
    seen = list(replay(records, Settings()))
    assert [s.observation.facts.version for s in seen] == ["0.10.1.1", "0.10.1.1", "0.10.2"]
    assert [s.observation.facts.sighted for s in seen] == [False, False, True]


def test_a_recorder_says_when_it_learnt_something_new(tmp_path: Path) -> None:
    class Now(SystemClock):
        at = 100.0

        def monotonic(self) -> float:
            return self.at

    clock = Now()
    recorder = Recorder(tmp_path / "r.jsonl", clock)
    clock.at = 102.0
    recorder.about(Known("0.32.0"))
    recorder.look(Look(103.0, 1.0, Page(kind="refused", error="refused")))
    clock.at = 110.0
    recorder.about(Known("0.33.0"))
    recorder.close()
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert [(line["t"], line.get("about")) for line in lines] == [
        (0.0, {"version": "0.32.0"}),
        (3.0, None),
        (10.0, {"version": "0.33.0"}),
    ]


def test_a_look_without_wall_clock_has_no_age_and_no_endless_grace() -> None:
    page = PageText((PAGES / "vllm-0.33.prom").read_text())
    page.value("vllm:num_requests_running", 1)
    records = [{k: v for k, v in look(5.0 * n, page).items() if k != "unix"} for n in range(70)]
    last = list(replay(records, Settings(confirm=False)))[-1].verdict
    assert last.state.value == "stuck", last.sentence


def test_idle_lanes_are_verified_in_the_order_in_which_the_recording_asked_them() -> None:
    page = PageText((PAGES / "vllm-0.33-dp2.prom").read_text())
    records: list[dict[str, Any]] = [look(5.0 * n, page) for n in range(10)]
    records += [
        {"t": 1.0, "canary": {"result": "answered", "lane": "1", "seconds": 0.1}},
        {"t": 6.0, "canary": {"result": "answered", "lane": "0", "seconds": 0.1}},
    ]
    last = list(replay(records, Settings()))[-1].verdict
    assert {lane.lane: lane.verified_at for lane in last.lanes} == {"0": 6.1, "1": 1.1}


def test_what_the_last_canary_said_stands_where_none_is_recorded_for_the_next_try() -> None:
    page = PageText((PAGES / "vllm-0.33.prom").read_text())
    page.value("vllm:num_requests_running", 1)
    records: list[dict[str, Any]] = [look(5.0 * n, page) for n in range(100)]
    records.append({"t": 301.0, "canary": {"result": "http", "status": 401, "seconds": 0.1}})
    seen = list(replay(records, Settings(idle_canary=False)))
    assert {s.verdict.state.value for s in seen if s.look.t > 35} == {"stalled"}
    assert all(s.verdict.reason.endswith("cannot confirm: 401") for s in seen if s.look.t > 305)
    assert [s.verdict.canary_available for s in seen if s.look.t > 305] == [False] * 38


@pytest.mark.parametrize("engine", ["auto", "mine"])
def test_an_engine_that_the_operator_described_is_replayed_as_it_is_watched(engine: str) -> None:
    def page(t: int) -> dict[str, Any]:
        return {"t": t, "metrics": {"status": 200, "body": f"my_steps_total {min(t, 20)}\nmy_running 1\nmy_queue 0\n"}}

    described = Described("mine", ("my_steps_total",), "my_running", ("my_queue",), blind=False)
    records = [{"t": 0, "metrics": {"error": "x", "kind": "refused"}}, *(page(t) for t in range(5, 400, 5))]
    seen = list(replay(records, Settings(confirm=False, start_grace=0), engine, (described,)))
    assert [seen[at].verdict.state for at in (0, 2, -1)] == ["down", "busy", "stuck"]


def test_a_described_engine_is_not_taken_for_a_built_in_ones_recording() -> None:
    described = Described("mine", ("my_steps_total",), "my_running", ("my_queue",))
    seen = list(replay([look(0.0, PageText((PAGES / "vllm-0.13.prom").read_text()))], Settings(), "auto", (described,)))
    assert seen[0].observation.facts.kind == "vllm"
