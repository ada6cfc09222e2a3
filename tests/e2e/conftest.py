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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For two at a time: a file stays together, and so do those that use the stack, or images that end with it."""
    for item in items:
        if item.get_closest_marker("e2e"):
            stack = "stack" in getattr(item, "fixturenames", ()) or item.path.stem in ("test_swarm_stack", "test_readme")
            item.add_marker(pytest.mark.xdist_group("stack" if stack else item.path.stem))
