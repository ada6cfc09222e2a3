"""Dashboards: the JSON is current, well-formed, and every query returns series from a real Prometheus after an incident."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rules.backfill import Past, prometheus_with_the_incident
from rules.exported import Metric, exported
from rules.incident import MINUTES
from rules.promql import lint, result_labels
from rules.scenes import RULES
from rules.servers import get, until
from rules.test_lint import RECORDING

HERE = RULES.parent / "dashboards"
BOARDS: dict[str, dict[str, Any]] = {p.stem: json.loads(p.read_text()) for p in sorted(HERE.glob("*.json"))}
PANELS = [(board, panel) for board, made in BOARDS.items() for panel in made["panels"]]
NAMES = [f"{board}: {panel['title']} {panel['type']}" for board, panel in PANELS]
UIDS = {"fleet": "stuckproof-fleet", "target": "stuckproof-target", "remediation": "stuckproof-remediation"}


def recorded() -> dict[str, Metric]:
    """The recording rules' results as metrics that a dashboard may read, and Prometheus' own ALERTS."""
    found = {name: Metric(name, "gauge", result_labels(expr, exported())) for name, expr in RECORDING.items()}
    alerts = Metric("ALERTS", "gauge", frozenset({"alertname", "alertstate", "severity"}), open_labels=True)
    return found | {"ALERTS": alerts}


METRICS = exported() | recorded()


def concrete(expr: str, target: str) -> str:
    """The query as Grafana would send it."""
    for name, value in {
        "$job": ".+",
        "$remediator_job": ".+",
        "$target": target,
        "$__rate_interval": "1m",
        "$__interval": "15s",
        "$__range": "45m",
    }.items():
        expr = expr.replace(name, value)
    assert "$" not in expr, expr
    return expr


def test_every_recording_rule_is_read_by_a_dashboard() -> None:
    read = {target["expr"] for _, panel in PANELS for target in panel["targets"]}
    assert [name for name in RECORDING if not any(name in expr for expr in read)] == []


def test_there_are_the_three_dashboards_with_stable_uids() -> None:
    assert {name: board["uid"] for name, board in BOARDS.items()} == UIDS


def test_the_json_is_what_the_generator_writes() -> None:
    done = subprocess.run([sys.executable, str(HERE / "generate.py"), "--check"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


def test_a_stale_json_is_noticed(tmp_path: Path) -> None:
    for path in (*HERE.glob("*.json"), *HERE.rglob("*.py")):
        copy = tmp_path / path.relative_to(HERE)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
    (tmp_path / "fleet.json").write_text("{}")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "generate.py"), "--check"], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 1
    assert "fleet.json" in done.stderr


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_is_well_formed(name: str) -> None:
    board = BOARDS[name]
    variables = {v["name"]: v for v in board["templating"]["list"]}
    assert list(variables) == ["datasource", "remediator_job" if name == "remediation" else "job", "target"]
    assert variables["datasource"]["type"] == "datasource"
    assert board["editable"] is False
    assert {link["url"] for link in board["links"]} == {f"/d/{uid}" for key, uid in UIDS.items() if key != name}
    assert all(link["keepTime"] and link["includeVars"] for link in board["links"])
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", BOARDS)
def test_panels_fill_the_grid_without_overlap(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARDS[name]["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        taken |= cells
    rows = max(y for _, y in taken) + 1
    assert len(taken) == 24 * rows, "no holes"


@pytest.mark.parametrize("board, panel", PANELS, ids=NAMES)
def test_a_panel_says_what_it_shows_and_in_which_unit(board: str, panel: dict[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert defaults["unit"]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert all(t["datasource"] == panel["datasource"] for t in panel["targets"])
    assert len({t["refId"] for t in panel["targets"]}) == len(panel["targets"])


@pytest.mark.parametrize("board, panel", PANELS, ids=NAMES)
def test_absence_looks_like_absence(board: str, panel: dict[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["noValue"] == "no data"
    assert defaults["custom"].get("spanNulls", False) is False
    assert not any("vector(0)" in t["expr"] for t in panel["targets"])


@pytest.mark.parametrize("board, panel", PANELS, ids=NAMES)
def test_its_queries_are_sound(board: str, panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        assert lint(concrete(target["expr"], "a"), METRICS) == []
        for window in re.findall(r"(?:rate|increase)\([^[]*\[([^]]*)\]", target["expr"]):
            assert window in {"$__rate_interval", "$__range"}


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    with prometheus_with_the_incident(tmp_path_factory.mktemp("past"), float(int(time.time()))) as made:
        until(
            lambda: get(f"{made.url}/api/v1/query", query='ALERTS{alertstate="firing"}')["data"]["result"] or None,
            "the latch is an alert",
        )
        yield made


def series(past: Past, expr: str, instant: bool) -> list[dict[str, Any]]:
    if instant:
        at = {} if "ALERTS" in expr else {"time": str(past.end)}
        return get(f"{past.url}/api/v1/query", query=expr, **at)["data"]["result"]
    span = {"start": str(past.start), "end": str(past.end), "step": "15"}
    return get(f"{past.url}/api/v1/query_range", query=expr, **span)["data"]["result"]


@pytest.mark.parametrize("board, panel", PANELS, ids=NAMES)
def test_every_query_returns_series_after_an_incident(past: Past, board: str, panel: dict[str, Any]) -> None:
    one = "hangs" if board == "target" else ".+"
    for target in panel["targets"]:
        found = series(past, concrete(target["expr"], one), target["instant"])
        assert found, target["expr"]
        used = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        if panel["type"] != "table" and len(found) > 1:
            assert used, "several lines need names"
        assert all(used <= set(line["metric"]) for line in found), "the legend names labels that the series have"


@pytest.mark.parametrize("name", BOARDS)
def test_variables_and_annotations_find_something(past: Past, name: str) -> None:
    board = BOARDS[name]
    for variable in board["templating"]["list"][1:]:
        metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
        assert label in get(f"{past.url}/api/v1/labels", **{"match[]": concrete(metric, ".+")})["data"]
    for annotation in board["annotations"]["list"]:
        found = series(past, concrete(annotation["expr"], ".+"), instant=False)
        assert found, annotation["expr"]
        used = set(re.findall(r"{{(\w+)}}", annotation["titleFormat"] + annotation["textFormat"]))
        assert all(used <= set(line["metric"]) for line in found)


ABSENT_WHILE_DOWN = ["Held work", "Progress", "Time without progress and its bound", "KV cache", "Event loop lag"]


@pytest.mark.parametrize("title", ABSENT_WHILE_DOWN)
def test_nothing_is_drawn_for_a_server_that_is_down(past: Past, title: str) -> None:
    panel = next(p for b, p in PANELS if b == "target" and p["title"] == title)
    for target in panel["targets"]:
        lines = series(past, concrete(target["expr"], "hangs"), instant=False)
        times = [at - past.start for line in lines for at, _ in line["values"]]
        assert any(at < 15 * MINUTES for at in times)
        assert any(at > 20 * MINUTES for at in times)
        assert not [at for at in times if 16.5 * MINUTES < at < 18.9 * MINUTES]


def test_the_timeline_shows_the_incident(past: Past) -> None:
    panel = next(p for b, p in PANELS if b == "target" and p["type"] == "state-timeline" and p["title"] == "State")
    names = {int(k): v["text"] for k, v in panel["fieldConfig"]["defaults"]["mappings"][0]["options"].items()}
    (line,) = series(past, concrete(panel["targets"][0]["expr"], "hangs"), instant=False)
    states = [names[int(float(value))] for _, value in line["values"]]
    went = [state for i, state in enumerate(states) if i == 0 or states[i - 1] != state]
    assert went == ["busy", "stalled", "stuck", "down", "starting", "busy"]
