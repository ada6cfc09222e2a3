"""Two rules that ask ``/health``: a Kubernetes liveness probe, and docker-autoheal over a Docker HEALTHCHECK.

Sources: Kubernetes, "Configure Liveness, Readiness and Startup Probes" (period 10 s, timeout 1 s, failureThreshold 3 are
its defaults; a startup probe holds the liveness probe back; the kubelet keeps the period whatever a probe takes). Docker,
Dockerfile reference, HEALTHCHECK (interval 30 s, timeout 30 s, retries 3 are its defaults, and the interval begins when the
last check ended; failures within the start period do not count, a success ends it). willfarrell/docker-autoheal, README (it
looks every 5 s and restarts what is unhealthy). Both get 20 minutes to start, which neither has by default: without them a
model that loads longer than 30 or 90 s would never come up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.week.schedule import MINUTE
from benchmarks.week.world import World

_START = 20 * MINUTE


@dataclass(frozen=True)
class Probe:
    """A GET of ``/health``, repeated; times in seconds.

    `reaction` passes between the verdict and the restart. `after_the_last`: the interval begins when the last one ended.
    """

    name: str
    every: float
    timeout: float
    failures: int
    reaction: float
    after_the_last: bool


LIVENESS = Probe("liveness probe", every=10.0, timeout=1.0, failures=3, reaction=0.0, after_the_last=False)
AUTOHEAL = Probe("HEALTHCHECK", every=30.0, timeout=30.0, failures=3, reaction=5.0, after_the_last=True)


def install(probe: Probe) -> Callable[[World], None]:
    """The rule with these numbers."""

    def start(world: World) -> None:
        failures = 0
        process = -1
        begun = False

        def ask() -> None:
            nonlocal failures, process, begun
            if process != world.restarts:
                process, failures, begun = world.restarts, 0, False
            good = world.answers_within(probe.timeout)
            begun = begun or good
            if good:
                failures = 0
            elif begun or world.now - world.started > _START:
                failures += 1
            world.at(world.now + probe.every + (0.0 if good or not probe.after_the_last else probe.timeout), ask)
            if failures >= probe.failures:
                failures = 0
                seen = world.restarts
                world.at(world.now + probe.timeout + probe.reaction, lambda: act(seen))

        def act(seen: int) -> None:
            if world.restarts == seen:
                world.restart(f"{probe.name}: {probe.failures} failures in a row")

        world.at(probe.every, ask)

    return start
