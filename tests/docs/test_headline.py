"""The README's headline figures are those of the simulated week's document."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = {
    "**Stuckproof**": "Stuckproof",
    "request watchdog (the story)": "request watchdog",
    "Kubernetes liveness on `/health`": "Kubernetes liveness",
    "docker-autoheal on a HEALTHCHECK": "docker-autoheal",
    "step counter, 120 s grace": "step counter, 120 s",
    "`rate(tokens[5m]) == 0`, `for: 5m`": "rate() == 0, for 5m",
}


def rows(text: str, head: str = "rule") -> dict[str, dict[str, str]]:
    """A table's rows by their first cell, each by the names of its columns."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    begin = next(number for number, row in enumerate(cells) if row[0] == head)
    return {row[0]: dict(zip(cells[begin], row, strict=True)) for row in cells[begin + 1 :] if len(row) == len(cells[begin])}


def test_the_readme_quotes_the_week() -> None:
    week = rows((ROOT / "docs" / "explanation" / "simulated-week.md").read_text().partition("Detected hangs and median")[0])
    quoted = rows((ROOT / "README.md").read_text().partition("## What people use today")[2], "")
    for shown, name in NAMES.items():
        played, said = week[name], quoted[shown]
        found = int(re.match(r"\d+", played["hangs restarted"])[0]) + int(played["told a person"])  # type: ignore[index]
        assert said["hangs found"] == str(found), name
        for column in ("false restarts", "missed", "median detection"):
            assert said[column] == played[column], f"{name}: {column}"
