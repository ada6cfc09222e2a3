"""The small ports: Alertmanager, people, the other remediators, and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from llm_remediator.outcome import Outcome


@dataclass(frozen=True, slots=True)
class ActiveAlert:
    """An alert as Alertmanager holds it now (`GET /api/v2/alerts`)."""

    labels: Mapping[str, str]
    state: str
    """active, suppressed, unprocessed"""
    silenced_by: tuple[str, ...] = ()
    inhibited_by: tuple[str, ...] = ()
    fingerprint: str = ""
    starts_at: float | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """The label `target`, or the empty string."""
        return self.labels.get("target", "")

    @property
    def firing(self) -> bool:
        """Active, and nobody silenced or inhibited it."""
        return self.state == "active" and not self.silenced_by and not self.inhibited_by


class AlertmanagerClient(Protocol):
    """One Alertmanager. Ask every configured one: a silence may not have reached its peers."""

    @property
    def url(self) -> str:
        """Base URL, for messages and as the metric's label."""
        ...

    async def alerts(self) -> Outcome[tuple[ActiveAlert, ...]]:
        """All `remediate="restart"` alerts it holds, suppressed ones too."""
        ...


@dataclass(frozen=True, slots=True)
class Notice:
    """What people are told: it acted, gave up, or stands down. Becomes one JSON body."""

    event: str
    """acted, recovered, recovered_unverified, failed, latched, foreign_owner, wrong_container, …"""
    target: str
    text: str
    at: float
    mode: str
    decision_id: int | str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


class Notifier(Protocol):
    """Tells people. Must never delay or stop an action: callers do not wait for it."""

    async def notify(self, notice: Notice) -> Outcome[None]:
        """One bounded attempt."""
        ...


class Leader(Protocol):
    """Who of several remediators may act."""

    @property
    def leading(self) -> bool:
        """Whether we may act now."""
        ...

    @property
    def words(self) -> str:
        """Who acts, or why nobody is known to."""
        ...


class Clock(Protocol):
    """Time, injected. Wall time is stored and compared across restarts; monotonic measures waits."""

    def wall(self) -> float:
        """Unix seconds."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin that never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...
