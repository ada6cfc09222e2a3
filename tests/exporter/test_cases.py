"""One public incident, one file in ``tests/cases``: what must be said along time, and what must never be said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exporter.cases import load, records, settings_of
from llm_common.durations import parse_duration
from llm_exporter.pipeline import Seen
from llm_exporter.replay import replay

CASES = sorted((Path(__file__).parents[1] / "cases").glob("*.yml"))


def verdicts(case: dict[str, Any]) -> list[Seen]:
    return list(replay(records(case), settings_of(case), case.get("engine", "auto")))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_incident(path: Path) -> None:
    case = load(path)
    seen = verdicts(case)
    assert seen
    for expected in case["expect"]:
        at = parse_duration(str(expected["at"]))
        nearest = max((s for s in seen if s.look.t <= at), key=lambda s: s.look.t)
        words = f"at {expected['at']}: {nearest.verdict.sentence}"
        assert nearest.verdict.state.value == expected["state"], words
        for said in _list(expected.get("says")):
            assert said in nearest.verdict.sentence, words
        for unsaid in _list(expected.get("not_says")):
            assert unsaid not in nearest.verdict.sentence, words
        if "lanes" in expected:
            assert {v.lane: v.state.value for v in nearest.verdict.lanes} == expected["lanes"], words
        if "progress" in expected:
            assert nearest.verdict.progress == expected["progress"], words
        if "held" in expected:
            assert nearest.verdict.held == expected["held"], words
    never = set(case.get("never", []))
    assert never, "a case names the states that must never appear"
    for s in seen:
        assert s.verdict.state.value not in never, f"at {s.look.t:g}: {s.verdict.sentence}"
        if case.get("asks") == "nothing":
            assert s.verdict.wants is None, f"at {s.look.t:g}: asked for a {s.verdict.wants}"
    if "asks" in case and case["asks"] != "nothing":
        assert case["asks"] in {s.verdict.wants.kind for s in seen if s.verdict.wants is not None}


def _list(value: Any) -> list[str]:
    return value if isinstance(value, list) else [] if value is None else [value]


def test_there_are_cases() -> None:
    assert len(CASES) > 40
