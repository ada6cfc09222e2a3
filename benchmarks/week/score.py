"""What a week came to: hangs and how they ended, false alarms, downtime."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from benchmarks.week.schedule import Hang


@dataclass
class Struck:
    """A hang that happened. `began` is when the first request was harmed; the three ends exclude each other."""

    kind: Hang
    began: float
    restarted: float | None = None
    paged: float | None = None
    missed: bool = False

    @property
    def detected_after(self) -> float | None:
        """Seconds until the rule restarted it or told a person."""
        found = [at for at in (self.restarted, self.paged) if at is not None]
        return min(found) - self.began if found else None


@dataclass
class Score:
    """What one rule did to one server in one week."""

    false_restarts: int = 0
    false_reasons: list[str] = field(default_factory=list)
    lost_requests: int = 0
    false_pages: int = 0
    hangs: list[Struck] = field(default_factory=list)
    downtime: float = 0.0


class Cause(StrEnum):
    """Who or what started the process anew."""

    RULE = "rule"
    PERSON = "person"
    DEPLOYMENT = "deployment"
    POLICY = "policy"
