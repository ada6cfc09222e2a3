"""Real engines beside the real exporter: fixtures, and the table of results that a full run writes."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from engines.results import Record, Row, merged, page


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """A port of the loopback that is free now."""

    def port() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    return port


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Record:
    """The test's row of the table; a test that fails has its row too, marked."""
    made = Record()
    request.node.stash[RECORD] = made
    return made


RECORD = pytest.StashKey[Record]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    made = item.stash.get(RECORD, None)
    if made is not None and call.when == "call":
        row = made.row or Row(item.path.stem, item.name, "", "", "did not come to an end")
        row.passed = report.passed
        keep(item.nodeid, row)
    return report


def keep(test: str, row: Row) -> None:
    """Write the table where ``STUCKPROOF_ENGINE_RESULTS`` says, case by case: a run that is broken off keeps what it has."""
    target, kept = os.environ.get("STUCKPROOF_ENGINE_RESULTS"), os.environ.get("STUCKPROOF_ENGINE_ROWS")
    if target and kept:
        Path(target).write_text(page(merged(Path(kept), test, row)), encoding="utf-8")
