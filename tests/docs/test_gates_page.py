"""The page of the gates has them all, in their order."""

from __future__ import annotations

import re
from pathlib import Path

from llm_remediator.policy import GATES

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "gates.md"


def test_the_page_names_every_gate_in_its_order() -> None:
    rows = re.findall(r"^\| (\d+) \| `([a-z_]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert [(int(number), name) for number, name in rows] == list(enumerate((name for name, _ in GATES), 1))
