"""The watchdog of the story: a real chat request every five minutes, 45 s to answer, five failures in a row restart.

Source: docs/explanation (the eight restarts). Its request needs what it checks: a slot.
"""

from __future__ import annotations

from benchmarks.week.engine import Request
from benchmarks.week.schedule import MINUTE
from benchmarks.week.world import World

EVERY = 5 * MINUTE
LIMIT = 45.0
FAILURES = 5
_PROMPT, _TOKENS = 20, 16


def install(world: World) -> None:
    """Ask for the whole week."""
    failures = 0

    def ask() -> None:
        request = world.submit(_PROMPT, _TOKENS)
        world.at(world.now + LIMIT, lambda: look(request))
        world.at(world.now + EVERY, ask)

    def look(request: Request | None) -> None:
        nonlocal failures
        wedged = not world.answers_within(LIMIT)
        if request is not None and request.ended == "finished" and not wedged:
            failures = 0
            return
        if request is not None:
            world.withdraw(request)
        failures += 1
        if failures >= FAILURES:
            failures = 0
            world.restart(f"{FAILURES} requests in a row not answered within {LIMIT:.0f} s")

    world.at(EVERY, ask)
