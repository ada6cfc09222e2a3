"""``rate(vllm:generation_tokens_total[5m]) == 0 and vllm:num_requests_running > 0``, and a restart when it fires.

Sources: Prometheus documentation, "Querying basics" (a range takes the samples of the last five minutes; a series whose
target could not be scraped is stale at once for an instant vector), "Functions" (`rate` needs two samples and adjusts for
counter resets), "Alerting rules" (`for` starts anew when the expression is false for one evaluation). Scrape and evaluation
every 15 s, scrape timeout 10 s. An alert that stays active notifies once; Alertmanager repeats after four hours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise

from benchmarks.week.schedule import HOUR, MINUTE
from benchmarks.week.world import World

EVERY = 15.0
TIMEOUT = 10.0
RANGE = 5 * MINUTE
REPEAT = 4 * HOUR


def increase(values: list[int]) -> int:
    """What `rate` sums: every rise, and after a fall the new value, since the counter began anew."""
    return sum(after - before if after >= before else after for before, after in pairwise(values))


def install(hold: float) -> Callable[[World], None]:
    """The rule with ``for: hold`` seconds."""

    def start(world: World) -> None:
        samples: deque[tuple[float, int]] = deque()
        pending_since: float | None = None
        notified: float | None = None

        def evaluate() -> None:
            nonlocal pending_since, notified
            world.at(world.now + EVERY, evaluate)
            scraped = world.answers_within(TIMEOUT)
            if scraped:
                samples.append((world.now, world.engine.generation_tokens))
            while samples and samples[0][0] <= world.now - RANGE:
                samples.popleft()
            flat = len(samples) >= 2 and increase([value for _, value in samples]) == 0
            if not (scraped and flat and world.engine.gauges.running > 0):
                pending_since = notified = None
                return
            if pending_since is None:
                pending_since = world.now
            due = notified is None or world.now - notified >= REPEAT
            if world.now - pending_since >= hold and due:
                notified = world.now
                world.restart("rate(generation_tokens[5m]) == 0 and running > 0")

        world.at(EVERY, evaluate)

    return start
