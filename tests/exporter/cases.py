"""Turns a case file of ``tests/cases`` into a recording: the records that `llm_exporter.replay.replay` judges.

A case is a life in phases. Each phase says how long it lasts and how the page (``tests/pages/<page>.prom``) changes:

- ``set``: series get a value, and keep it; ``grow``: series rise by this much at each look of the phase;
  ``cycle``: series take these values in turn; ``drop``: series leave the page for the phase.
- ``fail``: the look fails (``timeout``, ``refused`` …); ``status`` and ``body``: the page answers so instead;
  ``health``: status of the engine's own ``/health``, or a failure's name.
- ``witness``: fields of `llm_exporter.judge.Witness`; ``extra``: JSON answers of other endpoints.

A series is a name, or a name with some of its labels: ``vllm:num_requests_running{engine=1}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from llm_common.durations import parse_duration
from llm_exporter.judge import Settings

HERE = Path(__file__).parents[1]
UNIX = 1796100000.0
CASE = frozenset({
    "incident", "says", "page", "engine", "settings", "at_first",
    "about", "headers", "life", "canaries", "expect", "never", "asks",
})  # fmt: skip
PHASE = frozenset({
    "for", "every", "set", "grow", "cycle", "drop", "fail",
    "status", "body", "health", "clock", "headers", "witness", "extra",
})  # fmt: skip
EXPECTED = frozenset({"at", "state", "says", "not_says", "lanes", "progress", "held"})
CANARY = frozenset({"at", "result", "status", "lane", "seconds"})


def load(path: Path) -> dict[str, Any]:
    case = yaml.safe_load(path.read_text())
    assert isinstance(case, dict)
    read = (([case], CASE), (case["life"], PHASE), (case["expect"], EXPECTED), (case.get("canaries", []), CANARY))
    for mappings, known in read:
        unknown = {key for mapping in mappings for key in mapping} - known
        assert not unknown, f"{path.name}: nobody reads {sorted(unknown)}"
    return case


def settings_of(case: dict[str, Any]) -> Settings:
    given = {
        key: parse_duration(str(value)) if isinstance(value, str) else value
        for key, value in case.get("settings", {}).items()
    }
    return Settings(**given)


class PageText:
    """A page whose values can be changed by series."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()

    def _matching(self, series: str) -> Iterator[int]:
        name, _, labels = series.partition("{")
        wanted = [pair.split("=", 1) for pair in labels.rstrip("}").split(",") if pair]
        for index, line in enumerate(self.lines):
            if re.match(rf"{re.escape(name)}[{{ ]", line) and all(f'{k}="{v}"' in line for k, v in wanted):
                yield index

    def value(self, series: str, change: Any) -> None:
        hits = list(self._matching(series))
        if not hits and "{" not in series:
            self.lines.append(f"{series} 0")
            hits = [len(self.lines) - 1]
        assert hits, f"no series {series} on the page"
        for index in hits:
            head, _, old = self.lines[index].rpartition(" ")
            new = change(float(old)) if callable(change) else change
            self.lines[index] = f"{head} {new}"

    def without(self, dropped: list[str]) -> str:
        gone = {index for series in dropped for index in self._matching(series)}
        return "\n".join(line for index, line in enumerate(self.lines) if index not in gone) + "\n"


def _answer(status: Any, body: str, headers: dict[str, str] | None, seconds: float = 0.003) -> dict[str, Any]:
    if isinstance(status, str):
        return {"error": status, "kind": status, "seconds": 4.0 if status == "timeout" else 0.001}
    return {"status": status, "seconds": seconds, "ctype": "text/plain", "body": body, "headers": headers or {}}


def records(case: dict[str, Any]) -> list[dict[str, Any]]:
    every = settings_of(case).interval
    page = PageText((HERE / "pages" / f"{case['page']}.prom").read_text())
    for series, value in case.get("at_first", {}).items():
        page.value(series, value)
    out: list[dict[str, Any]] = []
    if "about" in case:
        out.append({"t": 0.0, "about": case["about"]})
    t, headers = 0.0, dict(case.get("headers", {}))
    for phase in case["life"]:
        end = t + parse_duration(str(phase["for"]))
        headers.update(phase.get("headers", {}))
        for series, value in phase.get("set", {}).items():
            page.value(series, value)
        look = 0
        while t < end:
            for series, amount in phase.get("grow", {}).items():
                page.value(series, lambda old, amount=amount: old + amount)
            for series, values in phase.get("cycle", {}).items():
                page.value(series, values[look % len(values)])
            body = phase.get("body", page.without(phase.get("drop", [])))
            status = phase.get("fail", phase.get("status", 200))
            record: dict[str, Any] = {
                "t": t,
                "unix": UNIX + t + phase.get("clock", 0.0),
                "metrics": _answer(status, body, headers),
                "health": _answer(phase.get("health", 200), "", None),
            }
            if "witness" in phase:
                record["witness"] = phase["witness"]
            if "extra" in phase:
                record["extra"] = {path: _answer(200, json.dumps(answer), None) for path, answer in phase["extra"].items()}
            out.append(record)
            t += float(phase.get("every", every))
            look += 1
    for canary in case.get("canaries", []):
        at = parse_duration(str(canary["at"]))
        out.append({"t": at, "canary": {k: v for k, v in canary.items() if k != "at"}})
    return out
