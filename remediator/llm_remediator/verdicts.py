"""What the exporter says of a target, and the port to it. Times are Unix seconds; None means unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from llm_remediator.outcome import Outcome


@dataclass(frozen=True, slots=True)
class TargetReport:
    """The exporter's running verdict on a target (`GET /api/v1/targets/NAME`)."""

    name: str
    url: str
    state: str
    sentence: str
    reason: str
    since: float | None = None
    progress: int | None = None
    held: float | None = None
    up: bool = False
    ready: bool = False
    maintenance: bool = False
    last_observation: float | None = None
    process_started: float | None = None
    incarnation: str | None = None
    restarts_seen: int = 0
    last_restart_seen: float | None = None
    last_unserved: float | None = None
    """Last look that was refused, reset, or 503 while loading: our restart must leave one."""
    idle_verified_at: float | None = None
    """Last canary that the model answered, or another witness of life."""
    last_progress: float | None = None
    canary_available: bool | None = None
    kind: str = ""
    history: tuple[tuple[float, str], ...] = ()
    """(since, state) of the last states, oldest first; only from `target`, not from `targets`."""


@dataclass(frozen=True, slots=True)
class Proof:
    """A fresh verdict made for us (`POST …/proof`), with the evidence as the exporter sent it."""

    target: str
    state: str
    sentence: str
    reason: str
    observed_at: float
    lane: str | None = None
    progress: int | None = None
    held: float | None = None
    flat_since: float | None = None
    process_started: float | None = None
    incarnation: str | None = None
    bound_seconds: float | None = None
    bound_why: str = ""
    hardware: str | None = None
    """A fatal GPU error that a restart would not mend."""
    evidence: tuple[Mapping[str, Any], ...] = ()


class ExporterClient(Protocol):
    """The one exporter of this remediator."""

    async def targets(self) -> Outcome[tuple[TargetReport, ...]]:
        """Every target it watches."""
        ...

    async def target(self, name: str) -> Outcome[TargetReport]:
        """One target; `NOT_FOUND` if the exporter does not know the name."""
        ...

    async def proof(self, name: str) -> Outcome[Proof]:
        """A fresh proof. Takes some looks: allow for the pauses between them, and a canary."""
        ...
