"""`make demo` on the running stack; `make run` and `make stop` are what the stack itself is made with."""

from __future__ import annotations

import re

import pytest

from e2e.harness import BUSY, HUNG, Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_make_demo_shows_a_hang_until_its_verified_restart(stack: Stack) -> None:
    stack.settle()
    before = {name: stack.incarnation(name) for name in (HUNG, BUSY)}
    said = stack.make("demo", timeout=280)
    story = [
        f"the engine process of {HUNG} is stopped",
        f"{HUNG}: stalled: ",
        f"{HUNG}: stuck: ",
        f"remediator: restarts {HUNG}",
        f"the container of {HUNG} was started anew",
        "remediator: verified",
    ]
    assert [line for line in story if line in said] == story, said
    places = [said.index(line) for line in story]
    assert places == sorted(places), said
    assert len(re.findall(r"^  yes  ", said, re.MULTILINE)) == 5, said
    assert stack.incarnation(HUNG) != before[HUNG]
    assert stack.incarnation(BUSY) == before[BUSY]


def test_make_demo_fails_if_the_engine_is_not_restarted(stack: Stack) -> None:
    stack.settle()
    assert stack.remediator("POST", f"/api/v1/targets/{HUNG}/pause", {"for": "10m", "reason": "e2e"}).status == 200
    try:
        with pytest.raises(AssertionError, match="no verified restart within 30 s"):
            stack.make("demo", timeout=120, DEMO_DEADLINE="30")
    finally:
        stack.fault("continue")
        assert stack.remediator("POST", f"/api/v1/targets/{HUNG}/resume", {}).status == 200
