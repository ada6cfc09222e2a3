"""Containers, as the gates see them, and the port to whatever runs them.

Times are Unix seconds; None means unknown (Docker's zero time `0001-01-01T00:00:00Z` included).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from llm_remediator.outcome import Outcome

RESTART_LABEL = "stuckproof.restart"
ALLOWED = "allowed"


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
