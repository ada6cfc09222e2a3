"""What end-to-end tests share: the stack, one `make run` for all that `make stop` ends; and a Docker client with hands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.harness import ROOT, Stack, docker_answers
from e2e.tiny_docker import Hands, engine, import_image

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


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """The machine's Docker Engine, which has the tiny image."""
    found = engine()
    if found is None:
        pytest.skip("no Docker Engine answers; `make test-e2e` starts one")
    import_image(found)
    yield found
    found.close()


@pytest.fixture
def hands(client: Any) -> Iterator[Hands]:
    """Makes containers; they are gone after the test."""
    mine = Hands(client)
    yield mine
    mine.clean()
