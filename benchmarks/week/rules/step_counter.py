"""The step-counter rule of gonka-ai/gonka pull request 1421, as its description and runner say.

Work held (running or waiting above 0) and ``vllm:iteration_tokens_total_count`` frozen for longer than 120 s, on three
looks in a row: restart. A scrape that times out (3 s) neither passes for idle nor for progress. While the port is refused a
start has 20 minutes (VLLM_RUNNER_TIMEOUT). How often it looks is up to its caller; every 5 s here, our own interval.
"""

from __future__ import annotations

from benchmarks.week.world import World

EVERY = 5.0
TIMEOUT = 3.0
GRACE = 120.0
IN_A_ROW = 3


def install(world: World) -> None:
    """Look for the whole week."""
    process, steps, since, hung = -1, -1, 0.0, 0

    def look() -> None:
        nonlocal process, steps, since, hung
        world.at(world.now + EVERY, look)
        if world.refused:
            return
        engine, answered = world.engine, world.answers_within(TIMEOUT)
        if process != world.restarts:
            if not answered:
                return
            process, steps, since, hung = world.restarts, engine.steps, world.now, 0
        idle = answered and engine.gauges.running == 0 and engine.gauges.waiting == 0
        if idle or (answered and engine.steps != steps):
            steps, since, hung = engine.steps, world.now, 0
        elif world.now - since > GRACE:
            hung += 1
            if hung >= IN_A_ROW:
                world.restart(f"step counter frozen for {world.now - since:.0f} s with work held")

    world.at(EVERY, look)
