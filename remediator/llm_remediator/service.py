"""What the web server, page and metrics need from the running remediator: one protocol and its views.

The core implements `Service`; nothing here does I/O. All times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class UnknownTargetError(LookupError):
    """No such target in the configuration (HTTP 404)."""


class NotPossibleError(Exception):
    """A request that makes no sense now, e.g. re-arming what is not latched (HTTP 409)."""


class StoreError(Exception):
    """The journal cannot store: 503, the only answer after which Alertmanager tries again."""


@dataclass(frozen=True, slots=True)
class ReceivedAlert:
    """One alert of a webhook body, checked and bounded. `status` is its own, never the group's."""

    status: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    fingerprint: str
    starts_at: float | None
    ends_at: float | None

    @property
    def target(self) -> str:
        """The label `target`: the only identity we use, and only as a key of our configuration."""
        return self.labels.get("target", "")


@dataclass(frozen=True, slots=True)
class Delivery:
    """One accepted webhook body."""

    alerts: tuple[ReceivedAlert, ...]
    truncated: int
    """Alerts that Alertmanager left out (`max_alerts`): the list's silence about a target means nothing."""
    group_key: str
    receiver: str
    sender: str
    """Peer address, for the audit."""


@dataclass(frozen=True, slots=True)
class GateView:
    """One gate's answer as things stand. `passed` None: not evaluated (it needs a fresh proof)."""

    name: str
    passed: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class DecisionView:
    """One journalled decision. `decision`: act, skip, defer, latch …; `reason`: the gate's label."""

    id: int | str
    at: float
    target: str
    decision: str
    reason: str
    text: str
    mode: str = ""
    outcome: str = ""
    gates: tuple[GateView, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TargetView:
    """One target as the page, `/api/v1/targets` and the metrics show it."""

    name: str
    phase: str
    """idle, in flight phases (intent, acting, warmup, verifying), backoff, latched …"""
    state: str
    """The exporter's last state for it; `unknown` if the exporter does not answer."""
    sentence: str
    alert: str
    """firing, resolved, none: what Alertmanager last said."""
    container: str
    """Selector and what it resolved to, in words."""
    host: str
    next_action: str
    """In words: what would be done, and when at the earliest."""
    next_gate: str
    """Name of the first gate that would refuse now, `none` if none would."""
    next_possible_at: float | None
    in_progress: bool
    latched: bool
    latch_reason: str
    paused_until: float | None
    pause_reason: str
    budget_remaining: int
    budget_total: int
    cooldown_until: float | None
    last_restart: float | None
    foreign_owner: str
    """Who else restarts it, or empty."""
    wrong_container: bool
    awaiting_approval: str = ""
    """What a person is asked to approve, in words; empty if nothing is asked."""
    approval_request: int | None = None
    """Number of that question: an answer to an earlier one is refused."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """What would happen if the alert fired now, gate by gate in their order."""

    target: str
    at: float
    decision: str
    reason: str
    text: str
    gates: tuple[GateView, ...]
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Overview:
    """The remediator itself."""

    mode: str
    """observe or act, as it is now (a broken journal turns act into observe)."""
    configured_mode: str
    mode_reason: str
    """Why `mode` differs from `configured_mode`, or empty."""
    version: str
    started_at: float
    paused_until: float | None
    pause_reason: str
    breaker_open: bool
    breaker_reason: str
    journal_writable: bool
    last_reconcile: float | None
    exporter_up: bool
    trigger: str = "alertmanager"
    """`exporter` when there is no Alertmanager: then no silence is honoured, and the page says so."""
    docker_up: Mapping[str, bool] = field(default_factory=dict)
    alertmanager_up: Mapping[str, bool] = field(default_factory=dict)
    notify_failures: int = 0
    task_deaths: Mapping[str, int] = field(default_factory=dict)
    """`Guard.deaths`"""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Counters:
    """Monotonic counts for `/metrics`, kept or derived from the journal by the core."""

    decisions: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """(target, decision, reason) -> count"""
    actions: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(target, outcome) -> count"""
    foreign_starts: Mapping[str, int] = field(default_factory=dict)
    downtimes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Seconds from our restart to proven work, one each, oldest first; only appended to."""


class Service(Protocol):
    """The running remediator, as the web server sees it. Reads are cheap and never wait for the outside,
    except `explain`, which looks at the container and the exporter again.
    """

    async def accept(self, delivery: Delivery) -> None:
        """Store durably (returns only then) and wake the worker. `StoreError` if it cannot."""
        ...

    def overview(self) -> Overview:
        """State of the remediator itself."""
        ...

    def targets(self) -> Sequence[TargetView]:
        """All targets in the order of the configuration."""
        ...

    def counters(self) -> Counters:
        """Counts since the journal began, or since start."""
        ...

    async def decisions(
        self, *, target: str | None = None, since: float | None = None, limit: int = 100
    ) -> Sequence[DecisionView]:
        """Newest first."""
        ...

    async def explain(self, target: str) -> Explanation:
        """Every gate's answer now. `UnknownTargetError`."""
        ...

    async def drill(self, target: str) -> Explanation:
        """The whole path with a fresh proof and without the restart call, journalled as a drill."""
        ...

    async def pause(self, target: str | None, *, seconds: float, reason: str, by: str) -> float:
        """Pause one target, or all (None). Returns when it ends: every pause ends."""
        ...

    async def resume(self, target: str | None, *, by: str) -> None:
        """End a pause now."""
        ...

    async def rearm(self, target: str, *, by: str) -> None:
        """Take a latch off. `NotPossibleError` if it is not latched."""
        ...

    async def approve(self, target: str, *, request: int | None, by: str) -> float:
        """A person's word on the restart that awaits it. Returns when it expires. `NotPossibleError` if none does."""
        ...

    def healthy(self) -> tuple[bool, str]:
        """Own tasks and loop: False means that this process must be restarted."""
        ...

    def ready(self) -> tuple[bool, str]:
        """Can it take webhooks and decide? False: journal broken, or not yet reconciled after the start."""
        ...
