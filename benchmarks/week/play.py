"""Plays the same weeks under every rule, each in a world of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

from benchmarks.week.rules import probes, promql, step_counter, watchdog
from benchmarks.week.rules.stuckproof import Stuckproof
from benchmarks.week.schedule import MINUTE, Hang, Schedule, draw
from benchmarks.week.score import Score
from benchmarks.week.servers import SERVERS
from benchmarks.week.world import World

Rule = Callable[[World], object]

RULES: dict[str, Rule] = {
    "Stuckproof": Stuckproof,
    "request watchdog": watchdog.install,
    "Kubernetes liveness": probes.install(probes.LIVENESS),
    "docker-autoheal": probes.install(probes.AUTOHEAL),
    "step counter, 120 s": step_counter.install,
    "rate() == 0": promql.install(0.0),
    "rate() == 0, for 5m": promql.install(5 * MINUTE),
}


@dataclass(frozen=True)
class Total:
    """One rule over all weeks. Times in seconds."""

    rule: str
    scores: tuple[Score, ...]

    @property
    def false_restarts(self) -> int:
        return sum(score.false_restarts for score in self.scores)

    @property
    def lost_requests(self) -> int:
        return sum(score.lost_requests for score in self.scores)

    @property
    def false_pages(self) -> int:
        return sum(score.false_pages for score in self.scores)

    @property
    def hangs(self) -> int:
        return sum(len(score.hangs) for score in self.scores)

    @property
    def restarted(self) -> int:
        return sum(hang.restarted is not None for score in self.scores for hang in score.hangs)

    @property
    def paged_only(self) -> int:
        return sum(hang.restarted is None and hang.paged is not None for score in self.scores for hang in score.hangs)

    @property
    def missed(self) -> int:
        return sum(hang.missed for score in self.scores for hang in score.hangs)

    @property
    def downtime(self) -> float:
        return sum(score.downtime for score in self.scores)

    @property
    def detection(self) -> float | None:
        """The median over the hangs that were detected."""
        return middle(found for score in self.scores for hang in score.hangs if (found := hang.detected_after) is not None)

    def of_kind(self, kind: Hang) -> tuple[int, int, float | None]:
        """Hangs of a kind: how many, how many detected, median seconds to detection."""
        hangs = [hang for score in self.scores for hang in score.hangs if hang.kind is kind]
        found = [after for hang in hangs if (after := hang.detected_after) is not None]
        return len(hangs), len(found), middle(found)


def middle(values: Iterable[float]) -> float | None:
    """The median, or None of nothing."""
    known = list(values)
    return median(known) if known else None


def weeks(seeds: Iterable[int], days: float = 7.0, hangs_of_each: int = 1) -> list[tuple[Schedule, int]]:
    """Every server's week for every seed."""
    return [(draw(server, seed, days, hangs_of_each), seed) for seed in seeds for server in SERVERS]


def play(rule: Rule, schedule: Schedule, seed: int) -> Score:
    """One week of one server under one rule."""
    world = World(schedule, seed)
    rule(world)
    return world.run()
