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


def rows(text: str) -> dict[str, list[str]]:
    cells = (
        [cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    )
    return {row[0]: row[1:] for row in cells}


def test_the_readme_quotes_the_week() -> None:
    week = rows((ROOT / "docs" / "explanation" / "simulated-week.md").read_text().partition("Detected hangs and median")[0])
    quoted = rows((ROOT / "README.md").read_text().partition("## What people use today")[2])
    for shown, name in NAMES.items():
        false, _, restarted, told, missed, median, _ = week[name]
        found = str(int(re.match(r"\d+", restarted)[0]) + int(told))  # type: ignore[index]
        assert quoted[shown][:4] == [false, found, missed, median], name
