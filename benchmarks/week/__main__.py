"""``python -m benchmarks.week``: play the weeks, print the table, write docs/explanation/simulated-week.md."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.week.play import RULES, Total, play
from benchmarks.week.report import page, table
from benchmarks.week.schedule import draw
from benchmarks.week.score import Score
from benchmarks.week.servers import SERVERS

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "simulated-week.md"


def one(task: tuple[str, int, int]) -> Score:
    """One rule, one server, one seed."""
    rule, server, seed = task
    return play(RULES[rule], draw(SERVERS[server], seed), seed)


def totals(seeds: Iterable[int], processes: int) -> list[Total]:
    """Every rule over every server's week for every seed."""
    weeks = [(server, seed) for seed in seeds for server in range(len(SERVERS))]
    tasks = [(rule, server, seed) for rule in RULES for server, seed in weeks]
    with ProcessPoolExecutor(processes) as pool:
        scores = list(pool.map(one, tasks))
    return [Total(rule, tuple(scores[index * len(weeks) : (index + 1) * len(weeks)])) for index, rule in enumerate(RULES)]


def main() -> int:
    """Play, print the table, and write the document unless told not to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.week", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2, help="weeks of each server (default 2)")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--no-write", action="store_true", help="print only")
    chosen = parser.parse_args()
    began = time.monotonic()
    found = totals(range(1, chosen.seeds + 1), chosen.processes)
    sys.stdout.write(table(found) + "\n")
    sys.stdout.write(f"{time.monotonic() - began:.0f} s\n")
    if not chosen.no_write:
        DOCUMENT.parent.mkdir(parents=True, exist_ok=True)
        DOCUMENT.write_text(page(found, chosen.seeds))
        sys.stdout.write(f"wrote {DOCUMENT}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
