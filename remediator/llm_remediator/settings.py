"""What a checked remediator.yml says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import overload

from llm_remediator.rules import FleetRules, Mode, Rules, Target


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An HTTP service that we ask, and how to show who we are. Secrets are paths, read when used."""

    url: str
    bearer_token_file: str | None = None
    username: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True, slots=True)
class DockerHost:
    """One Docker Engine: `unix:///var/run/docker.sock` or `tcp://host:2376` with client certificates."""

    name: str
    url: str
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True, slots=True)
class FixedCommand:
    """An argv list from this file alone; no shell, nothing from an alert in it."""

    name: str
    argv: tuple[str, ...]
    timeout: float


@dataclass(frozen=True, slots=True)
class KubernetesAccess:
    """The API server and the lease; without `api` the pod's own service account is used."""

    api: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    namespace: str | None = None
    evict: bool = True
    lease: str | None = None
    lease_duration: float = 30.0


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """What is captured before acting, and how long that may take."""

    timeout: float = 20.0
    log_lines: int = 200
    command: tuple[str, ...] = ()
    """An own stack dumper, e.g. `[py-spy, dump, --pid, "{pid}"]`; `{pid}` and `{id}` come from inspect."""


@dataclass(frozen=True, slots=True)
class LabelledHost:
    """`discovery.docker[]`: containers of one Docker host that opted in by label are targets too."""

    host: str
    refresh: float = 30.0


class TargetBook(Sequence[Target]):
    """The targets now: those of the file, and those that containers' labels name. Whoever iterates sees the newest."""

    def __init__(self, configured: Sequence[Target]) -> None:
        self._configured = tuple(configured)
        self._labelled: tuple[Target, ...] = ()

    def take(self, labelled: Sequence[Target]) -> None:
        """Replace the labelled ones; a name of the file wins over a label."""
        own = {target.name for target in self._configured}
        self._labelled = tuple(target for target in labelled if target.name not in own)

    @overload
    def __getitem__(self, index: int) -> Target: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Target]: ...

    def __getitem__(self, index: int | slice) -> Target | Sequence[Target]:
        return (*self._configured, *self._labelled)[index]

    def __len__(self) -> int:
        return len(self._configured) + len(self._labelled)


@dataclass(frozen=True, slots=True)
class Config:
    """A checked remediator.yml."""

    mode: Mode
    trigger: str
    """alertmanager, or exporter: its states are polled, and no silence is honoured."""
    exporter: Endpoint
    alertmanagers: tuple[Endpoint, ...]
    journal: str
    targets: Sequence[Target]
    docker_hosts: tuple[DockerHost, ...]
    commands: tuple[FixedCommand, ...] = ()
    kubernetes: KubernetesAccess | None = None
    labelled: tuple[LabelledHost, ...] = ()
    rules: Rules = field(default_factory=Rules)
    """`defaults`: what a target is allowed that only a label names."""
    notify: tuple[Endpoint, ...] = ()
    grafana: Endpoint | None = None
    fleet: FleetRules = field(default_factory=FleetRules)
    diagnostics: Diagnostics = Diagnostics()
    pause_file: str | None = None
    audit_log: str | None = None
    interval: float = 30.0
    alert_ttl: float = 300.0
    keep: float = 90 * 86400.0

    def target(self, name: str) -> Target | None:
        """The target of that name."""
        return next((t for t in self.targets if t.name == name), None)
