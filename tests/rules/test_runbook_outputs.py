"""The outputs in the runbooks are what promtool really prints about the simulated incident."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator

import pytest

from rules.backfill import Past, prometheus_with_the_incident
from rules.incident import MINUTES
from rules.servers import program
from rules.test_runbooks import PAGES

RENAMED = {"hangs": "vllm-a", "full": "vllm-b", "broken": "vllm-c", "blind": "vllm-d", "sleeps": "vllm-e"}
"""The incident's targets and what the pages call them."""

SHOWN_AT = (15.5, 30.0, 35.0, 3.0)
"""Minutes of the incident at which a page may look."""

BLOCK = re.compile(r"^\$ promtool query instant http://prometheus:9090 '([^\n]*)'\n((?:[a-z_]*\{[^\n]*\n)*)", re.M)
QUERIES = [(alert, query, said) for alert, text in PAGES.items() for query, said in BLOCK.findall(text)]


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    with prometheus_with_the_incident(tmp_path_factory.mktemp("past"), float(int(time.time()))) as made:
        yield made


def printed(past: Past, query: str, minute: float) -> list[str]:
    """What promtool prints at that minute, with the pages' names; the time stamps are left out."""
    for ours, theirs in RENAMED.items():
        query = query.replace(f'"{theirs}"', f'"{ours}"')
    argv = [program("promtool"), "query", "instant", f"--time={past.start + minute * MINUTES:.0f}", past.url, query]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    text = re.sub(r" @\[\d+\]", "", done.stdout)
    for ours, theirs in RENAMED.items():
        text = text.replace(f'target="{ours}"', f'target="{theirs}"')
    return sorted(line for line in text.splitlines() if line)


@pytest.mark.parametrize("alert, query, said", QUERIES, ids=[f"{a}-{i}" for i, (a, _, _) in enumerate(QUERIES)])
def test_a_page_shows_what_promtool_prints(past: Past, alert: str, query: str, said: str) -> None:
    shown = sorted(said.splitlines())
    found = [printed(past, query, minute) for minute in SHOWN_AT]
    assert shown in found, (alert, query, found)


def test_there_are_queries_to_check() -> None:
    assert len(QUERIES) > 40
