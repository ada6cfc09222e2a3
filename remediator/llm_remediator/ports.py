"""What the remediator needs from the world, as protocols, and the plain facts that come back.

Nothing here does I/O. Every call answers with an `Outcome`: an adapter never raises for what the
outside did, so that "it said no", "it never answered" and "it is not there" stay three things.
Times are Unix seconds; None means unknown (Docker's zero time `0001-01-01T00:00:00Z` included).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Status(StrEnum):
    """How a call to the outside ended. Only `OK` carries a value."""

    OK = "ok"
    NOT_FOUND = "not_found"
    """The other side answers and knows nothing by that name or id."""
    REFUSED = "refused"
    """It answered, and said no (4xx, 5xx, a proxy's 403, a command's exit status)."""
    TIMED_OUT = "timed_out"
    """Sent, no answer in time: it may or may not have happened. Inspect before you believe anything."""
    UNAVAILABLE = "unavailable"
    """Never sent or never reached: connection refused, DNS, TLS, permission, host marked unhealthy."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T_co]):
    """Result of one call. `detail` is a sentence for people whenever `status` is not `OK`."""

    status: Status
    value: T_co | None = None
    detail: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True if the call did what it says."""
        return self.status is Status.OK

    def get(self) -> T_co:
        """The value; `ValueError` if there is none (ask `ok` first)."""
        if self.status is not Status.OK or self.value is None:
            raise ValueError(f"no value: {self.status} {self.detail}")
        return self.value


# --- containers -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Selector:
    """Which container a target is, from the configuration alone. Exactly one kind is given.

    `compose_project` + `compose_service` (+ `compose_number` for a scaled service), or `label`
    (`key=value`, or `key` for any value), or `container` (its exact name, never an id prefix),
    or `service` (Swarm), or `command` (name of a fixed command), or `pods` (a Kubernetes label selector in `namespace`
    that one pod has; `pod_container` names the engine's container in it, else the first).
    """

    compose_project: str | None = None
    compose_service: str | None = None
    compose_number: int | None = None
    label: str | None = None
    container: str | None = None
    service: str | None = None
    command: str | None = None
    pods: str | None = None
    namespace: str | None = None
    pod_container: str | None = None

    @property
    def empty(self) -> bool:
        """True if it would select everything: Docker reads an empty filter as "all containers"."""
        compose = bool(self.compose_project and self.compose_service)
        label = bool(self.label and self.label.partition("=")[0].strip())
        return not (compose or label or self.container or self.service or self.command or self.pods)

    def __str__(self) -> str:
        if self.compose_project or self.compose_service:
            number = f" number {self.compose_number}" if self.compose_number is not None else ""
            return f"compose service {self.compose_project}/{self.compose_service}{number}"
        if self.pods:
            return f"pods {self.pods} in namespace {self.namespace or 'of the remediator'}"
        for kind in ("label", "container", "service", "command"):
            value = getattr(self, kind)
            if value:
                return f"{kind} {value}"
        return "nothing"


@dataclass(frozen=True, slots=True)
class Match:
    """A container that a selector matches. `oneoff` ones (`compose run`) are never returned."""

    id: str
    name: str
    state: str
    image: str = ""
    replaces: str | None = None
    """Value of `com.docker.compose.replace`: it was made to replace that one (the label stays for ever)."""
    renamed: bool = False
    """Compose's temporary name `<12 hex>_<name>`: a recreate is under way, or one failed."""


@dataclass(frozen=True, slots=True)
class Container:
    """One `inspect`. The incarnation is `(id, started_at_raw)`: either differs, somebody started it anew."""

    id: str
    name: str
    state: str
    """created, running, paused, restarting, removing, exited, dead (`restarting` also has running True)."""
    running: bool
    paused: bool
    restarting: bool
    started_at: float | None
    started_at_raw: str
    finished_at: float | None = None
    exit_code: int | None = None
    error: str = ""
    """`State.Error`: why the last start failed, e.g. a bind mount or GPU that is gone."""
    oom_killed: bool = False
    restart_count: int = 0
    """Restarts by the policy since the last API start, which resets it to 0: no use for budgets."""
    pid: int = 0
    image: str = ""
    restart_policy: str = ""
    stop_timeout: int | None = None
    """The container's own grace in seconds (`Config.StopTimeout`), None = the daemon's 10 s."""
    init: bool = False
    health: str | None = None
    """none, starting, healthy, unhealthy; `unhealthy` is also said of paused and stopped ones (moby)."""
    owner: str | None = None
    """`swarm`, `kubernetes` or `podman-systemd` if something else manages it."""
    watchdog_labels: tuple[str, ...] = ()
    """Labels that invite a second watchdog, e.g. `autoheal=true`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    network_mode: str = ""
    addresses: tuple[str, ...] = ()
    """Names and IPs it has in its networks, to compare with the exporter's URL."""
    ports: tuple[int, ...] = ()
    """Ports it exposes inside."""
    published: tuple[tuple[str, int], ...] = ()
    """(host IP, host port) of published ports."""

    @property
    def incarnation(self) -> str:
        """Changes with every start and every recreate."""
        return f"{self.id}@{self.started_at_raw}"


@dataclass(frozen=True, slots=True)
class Process:
    """A line of `top`. `stat` as ps prints it: `D` uninterruptible, `Z` zombie, `R` running."""

    pid: int
    ppid: int
    stat: str
    wchan: str
    elapsed: float | None
    command: str


@dataclass(frozen=True, slots=True)
class Event:
    """A container event (kill, die, stop, start, restart, pause, …) with who may have caused it."""

    at: float
    action: str
    signal: str | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """What a ping learned: versions, and warnings about versions known to lose containers."""

    version: str
    api_version: str
    warnings: tuple[str, ...] = ()
    clock_skew: float | None = None
    """The host's clock less ours, in seconds (to a second): `started_at` is told by that clock."""


@dataclass(frozen=True, slots=True)
class RuntimeHealth:
    """Whether calls may be sent. `hung_since` is set while a call has not come back past its deadline."""

    up: bool
    reason: str = ""
    hung_since: float | None = None


class ContainerRuntime(Protocol):
    """One Docker host, Swarm manager or the local command runner. Calls never overlap on one host.

    `restart` and `start` take only an id that `inspect` gave in the same decision, and are never retried.
    While a call is out past its deadline every other call answers `UNAVAILABLE` at once.
    """

    @property
    def host(self) -> str:
        """Name of the host from the configuration (`docker.hosts.NAME`)."""
        ...

    @property
    def health(self) -> RuntimeHealth:
        """State now, without asking anybody."""
        ...

    async def ping(self) -> Outcome[RuntimeInfo]:
        """Is it there, and what is it? Also what brings an unhealthy host back."""
        ...

    async def find(self, selector: Selector) -> Outcome[tuple[Match, ...]]:
        """All containers the selector matches, stopped ones too. An empty selector is `REFUSED`."""
        ...

    async def inspect(self, container_id: str) -> Outcome[Container]:
        """One container by its 64-hex id."""
        ...

    async def restart(self, container_id: str, *, stop_timeout: float) -> Outcome[None]:
        """Stop with `stop_timeout` seconds of grace, then start. One request, no retry."""
        ...

    async def start(self, container_id: str) -> Outcome[None]:
        """Start one that our own restart left stopped."""
        ...

    async def top(self, container_id: str) -> Outcome[tuple[Process, ...]]:
        """Its processes, without exec."""
        ...

    async def logs(self, container_id: str, *, lines: int, max_bytes: int) -> Outcome[str]:
        """The last log lines, cut to `max_bytes` (the end is kept)."""
        ...

    async def events(self, container_id: str, *, since: float, until: float) -> Outcome[tuple[Event, ...]]:
        """Its events in that window, oldest first. The daemon keeps some 256 events of all containers."""
        ...

    async def watchdogs(self) -> Outcome[tuple[str, ...]]:
        """Running containers on this host that look like a second watchdog (autoheal and kin)."""
        ...

    async def close(self) -> None:
        """Release connections and the thread. A hung thread is left behind (daemonic)."""
        ...


# --- the exporter -----------------------------------------------------------------------------


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


# --- Alertmanager -----------------------------------------------------------------------------


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


# --- people and time --------------------------------------------------------------------------


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


class Notifier(Protocol):
    """Tells people. Must never delay or stop an action: callers do not wait for it."""

    async def notify(self, notice: Notice) -> Outcome[None]:
        """One bounded attempt."""
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


def failed(status: Status, detail: str, seconds: float = 0.0) -> Outcome[Any]:
    """An outcome without a value."""
    return Outcome(status=status, value=None, detail=detail, seconds=seconds)


def the_one(matches: Sequence[Match], selector: Selector) -> tuple[Match | None, str]:
    """The only match, or None and why not: none, several, or a recreate under way."""
    if len(matches) == 1:
        return matches[0], ""
    if not matches:
        return None, f"no container matches {selector}"
    names = ", ".join(sorted(m.name for m in matches))
    if any(m.renamed for m in matches):
        return None, f"{selector} is being recreated: {names}"
    return None, f"{len(matches)} containers match {selector}: {names}"
