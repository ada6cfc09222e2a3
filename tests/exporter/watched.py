"""A made-up target that the judge looks at every five seconds: its edges are easier told by hand than by pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from llm_exporter.judge import (
    CanaryOutcome,
    Facts,
    History,
    LaneEvidence,
    Observation,
    Settings,
    Verdict,
    judge,
)

FACTS = Facts("made-up", pins_lanes=True)


PATIENCE = Settings(interval=5, stalled_after=20, stuck_after=60, start_grace=0, canary_every=300)


class Watched:
    """A target that is looked at every five seconds."""

    def __init__(self, settings: Settings = PATIENCE, facts: Facts = FACTS) -> None:
        self.settings, self.facts = settings, facts
        self.history, self.t = History(), -5.0

    def look(self, steps: float, running: float = 0.0, **more: object) -> Verdict:
        """The next look at its one lane."""
        lane = LaneEvidence("0", {"steps": steps}, running, 0.0, steps=steps)
        return self.see(lane, **more)

    def see(self, *lanes: LaneEvidence, after: float = 5.0, **more: object) -> Verdict:
        self.t += after
        seen = Observation(1e9 + self.t, "answered", facts=self.facts, lanes=lanes, incarnation="1")
        changes: Mapping[str, object] = more
        self.history, verdict = judge(self.history, replace(seen, **changes), self.t, self.settings)  # type: ignore[arg-type]
        return verdict


def silent(began: float, kind: str = "confirm", lane: str | None = "0") -> CanaryOutcome:
    return CanaryOutcome(kind, "silent", began, 5.0, lane=lane)  # type: ignore[arg-type]
