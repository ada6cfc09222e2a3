"""One `make run` for all end-to-end tests; `make stop` ends it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.harness import ROOT, Stack, docker_answers

LOGS = ROOT / ".run" / "e2e"


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The running stack; its logs stay in .run/e2e/ when a test failed."""
    if not docker_answers():
        pytest.skip("no Docker Engine answers; `make test-e2e` starts one")
    folder: Path = tmp_path_factory.mktemp("settings")
    stack = Stack("stuckproof-e2e", folder)
    try:
        stack.up()
        stack.settle()
        yield stack
    finally:
        stack.keep_logs(LOGS)
        stack.stop()
