"""remediator.yml, strictly: every problem at once, with its key path and the remedy.

The file alone says which container a target is; nothing from an alert ever adds to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from llm_common.config import ConfigError, Reader, format_duration, load_yaml
from llm_common.web import WebConfig, is_loopback
from llm_remediator.model import Backend, Budget, FleetRules, Mode, Rules, Target
from llm_remediator.ports import Selector

STATES = (
    "starting", "idle", "busy", "stalled", "stuck", "starved", "sleeping",
    "failed", "unreachable", "down", "unknown",
)  # fmt: skip
RESTARTABLE = ("stuck", "starved", "failed", "down")
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.:/@-]{0,199}"
_LOCAL = "local"


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
class Diagnostics:
    """What is captured before acting, and how long that may take."""

    timeout: float = 20.0
    log_lines: int = 200
    command: tuple[str, ...] = ()
    """An own stack dumper, e.g. `[py-spy, dump, --pid, "{pid}"]`; `{pid}` and `{id}` come from inspect."""


@dataclass(frozen=True, slots=True)
class Config:
    """A checked remediator.yml."""

    mode: Mode
    trigger: str
    """alertmanager, or exporter: its states are polled, and no silence is honoured."""
    exporter: Endpoint
    alertmanagers: tuple[Endpoint, ...]
    journal: str
    targets: tuple[Target, ...]
    docker_hosts: tuple[DockerHost, ...]
    commands: tuple[FixedCommand, ...] = ()
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


def load(path: str | Path) -> Config:
    """Read and check the file; `ConfigError` lists everything that is wrong with it."""
    return parse(load_yaml(path), str(path))


def parse(document: object, name: str = "remediator.yml") -> Config:
    """Check a document; `ConfigError` lists everything that is wrong with it."""
    problems: list[str] = []
    top = Reader(problems, "", document)
    config = _config(top)
    if problems:
        raise ConfigError([f"{name}: {problem}" for problem in problems])
    return config


def check_listen(config: Config, listen: list[str], web_config_file: str | None) -> None:
    """`mode: act` on an address that others reach needs credentials; `ConfigError` says so."""
    if config.mode is not Mode.ACT:
        return
    open_addresses = [address for address in listen if not is_loopback(address)]
    if not open_addresses:
        return
    if web_config_file is None or not WebConfig.load(web_config_file).has_credentials:
        raise ConfigError(
            f"--web.listen-address {open_addresses[0]}: mode act and reachable by others, without "
            "credentials; give --web.config.file with bearer_token_file, or listen on 127.0.0.1"
        )


def _config(top: Reader) -> Config:
    mode = Mode(top.text("mode", "observe", choices=[m.value for m in Mode]) or "observe")
    trigger = top.text("trigger", "alertmanager", choices=["alertmanager", "exporter"])
    exporter = _endpoint(top, "exporter", required=True)
    alertmanagers = _endpoints(top, "alertmanagers")
    if mode is Mode.ACT and trigger == "alertmanager" and not alertmanagers:
        top.problem(
            "alertmanagers",
            "is required in mode act: each is asked before a restart whether the alert still fires and "
            "nobody silenced it; without any Alertmanager set trigger: exporter",
        )
    if trigger == "exporter" and alertmanagers:
        top.problem("alertmanagers", "is not used with trigger: exporter; remove one of the two")
    hosts = _docker_hosts(top.mapping("docker"))
    commands = _commands(top)
    defaults = top.mapping("defaults")
    rules = _rules(defaults, Rules())
    defaults.done()
    config = Config(
        mode=mode,
        trigger=trigger,
        exporter=exporter or Endpoint(""),
        alertmanagers=alertmanagers,
        journal=top.text("journal"),
        targets=_targets(top, rules, hosts, commands),
        docker_hosts=hosts,
        commands=commands,
        notify=_endpoints(top, "notify"),
        grafana=_endpoint(top, "grafana", required=False),
        fleet=_fleet(top.mapping("fleet")),
        diagnostics=_diagnostics(top.mapping("diagnostics")),
        pause_file=top.text("pause_file", None),
        audit_log=top.text("audit_log", None),
        interval=top.duration("interval", 30.0, low=0.2),
        alert_ttl=top.duration("alert_ttl", 300.0, low=1.0),
        keep=top.duration("keep", 90 * 86400.0, low=86400.0),
    )
    top.done()
    return config


def _rules(reader: Reader, base: Rules) -> Rules:
    restart_on = reader.strings("restart_on", sorted(base.restart_on))
    for state in restart_on:
        if state not in RESTARTABLE:
            known = "is no reason for a restart" if state in STATES else "is not a state"
            reader.problem("restart_on", f"{state} {known}; choose from {', '.join(RESTARTABLE)}")
    if not restart_on:
        reader.problem(
            "restart_on", "is empty: nothing would ever be restarted; leave the target out instead"
        )
    rules = Rules(
        restart_on=frozenset(restart_on),
        cooldown=reader.duration("cooldown", base.cooldown, low=1.0),
        cooldown_max=reader.duration("cooldown_max", base.cooldown_max, low=1.0),
        budget=_budget(reader.mapping("budget"), base.budget),
        startup_grace=reader.duration("startup_grace", base.startup_grace),
        stop_timeout=reader.duration("stop_timeout", base.stop_timeout, low=1.0),
        verify_within=reader.duration("verify_within", base.verify_within, low=1.0),
        min_healthy=reader.duration("min_healthy", base.min_healthy),
        rearm_after=reader.duration("rearm_after", base.rearm_after),
    )
    if rules.cooldown_max < rules.cooldown:
        if reader.has("cooldown_max"):
            reader.problem("cooldown_max", f"is below cooldown ({format_duration(rules.cooldown)})")
        rules = replace(rules, cooldown_max=rules.cooldown)
    if rules.stop_timeout > 3600:
        reader.problem("stop_timeout", "is over an hour; a stuck engine never ends sooner than this")
    return rules


def _budget(reader: Reader, base: Budget) -> Budget:
    budget = Budget(
        reader.integer("restarts", base.restarts, low=1), reader.duration("per", base.per, low=1.0)
    )
    reader.done()
    return budget


def _fleet(reader: Reader) -> FleetRules:
    base = FleetRules()
    rules = FleetRules(
        max_concurrent=reader.integer("max_concurrent", base.max_concurrent, low=1),
        max_unhealthy=_share(reader, "max_unhealthy", base.max_unhealthy),
        budget=_budget(reader.mapping("budget"), base.budget),
        storm_cooldown=reader.duration("storm_cooldown", base.storm_cooldown),
    )
    reader.done()
    return rules


def _share(reader: Reader, key: str, default: float) -> float:
    if not reader.has(key):
        return default
    raw = str(reader.raw(key)).strip()
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*%", raw)
    if match is None or not 0 < float(match[1]) <= 100:
        reader.problem(key, f"{raw!r} is not a share such as 20%")
        return default
    return float(match[1]) / 100


def _diagnostics(reader: Reader) -> Diagnostics:
    base = Diagnostics()
    result = Diagnostics(
        timeout=reader.duration("timeout", base.timeout, low=0.1),
        log_lines=reader.integer("log_lines", base.log_lines, low=0, high=10000),
        command=tuple(reader.strings("command", [])),
    )
    reader.done()
    return result


def _url(reader: Reader, key: str, value: object) -> str:
    try:
        parts = urlsplit(value) if isinstance(value, str) else None
        good = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)
        good = good and (parts is None or parts.port is None or parts.port > 0)
    except ValueError:
        good, parts = False, None
    if not good or parts is None or not isinstance(value, str):
        reader.problem(key, f"{value!r} is not a URL such as http://127.0.0.1:10140")
        return ""
    if parts.username or parts.password:
        reader.problem(
            key,
            "has credentials in it, which logs would show; use bearer_token_file or username, password_file",
        )
        return ""
    return value.rstrip("/")


def _endpoint_of(parent: Reader, key: str, value: object) -> Endpoint:
    if not isinstance(value, dict):
        return Endpoint(_url(parent, key, value))
    reader = Reader(parent.problems, parent.where(key), value)
    endpoint = Endpoint(
        url=_url(reader, "url", reader.text("url")),
        bearer_token_file=reader.secret_file("bearer_token_file"),
        username=reader.text("username", None),
        password_file=reader.secret_file("password_file"),
        **_tls_files(reader),
    )
    if (endpoint.username is None) != (endpoint.password_file is None):
        reader.problem("username", "username and password_file belong together; give both")
    reader.done()
    return endpoint


def _tls_files(reader: Reader) -> dict[str, str | None]:
    files = {key: reader.text(key, None) for key in ("ca_file", "cert_file", "key_file")}
    for key, path in files.items():
        if path is not None and not Path(path).is_file():
            reader.problem(key, f"{path} is not a file")
    if (files["cert_file"] is None) != (files["key_file"] is None):
        reader.problem("cert_file", "cert_file and key_file belong together; give both")
    return files


def _endpoint(top: Reader, key: str, *, required: bool) -> Endpoint | None:
    if not top.has(key):
        if required:
            top.problem(key, "is required: the URL of llm-exporter, e.g. http://127.0.0.1:10140")
        return None
    return _endpoint_of(top, key, top.raw(key))


def _endpoints(top: Reader, key: str) -> tuple[Endpoint, ...]:
    if not top.has(key):
        return ()
    raw = top.raw(key)
    values = raw if isinstance(raw, list) else [raw]
    endpoints = tuple(_endpoint_of(top, f"{key}[{i}]", value) for i, value in enumerate(values))
    urls = [e.url for e in endpoints if e.url]
    for url in sorted({u for u in urls if urls.count(u) > 1}):
        top.problem(key, f"{url} is there twice; remove one")
    return endpoints


def _docker_hosts(reader: Reader) -> tuple[DockerHost, ...]:
    raw = reader.raw("hosts")
    reader.done()
    if raw is None:
        return (DockerHost(_LOCAL, "unix:///var/run/docker.sock"),)
    if not isinstance(raw, dict) or not raw:
        reader.problem(
            "hosts", "must be a mapping of names to URLs, e.g. {local: unix:///var/run/docker.sock}"
        )
        return ()
    hosts = []
    for name, value in raw.items():
        at = Reader(
            reader.problems,
            reader.where(f"hosts.{name}"),
            value if isinstance(value, dict) else {"url": value},
        )
        url = at.text("url")
        files = _tls_files(at)
        if url and not re.fullmatch(r"unix:///\S+|tcp://[^\s/]+:[0-9]+|https?://[^\s/]+:[0-9]+", url):
            at.problem("url", f"{url!r} is not unix:///path, tcp://host:port or https://host:port")
        at.done()
        hosts.append(DockerHost(str(name), url, **files))
    return tuple(hosts)


def _commands(top: Reader) -> tuple[FixedCommand, ...]:
    raw = top.raw("commands")
    if raw is None:
        return ()
    if not isinstance(raw, dict):
        top.problem("commands", "must be a mapping of names to {argv: […], timeout: …}")
        return ()
    commands = []
    for name, value in raw.items():
        at = Reader(top.problems, top.where(f"commands.{name}"), value)
        argv = tuple(at.strings("argv"))
        if argv and not argv[0].startswith("/"):
            at.problem("argv", f"{argv[0]!r} must be an absolute path: what runs must not depend on PATH")
        commands.append(FixedCommand(str(name), argv, at.duration("timeout", 120.0, low=1.0)))
        at.done()
    return tuple(commands)


def _targets(
    top: Reader, defaults: Rules, hosts: tuple[DockerHost, ...], commands: tuple[FixedCommand, ...]
) -> tuple[Target, ...]:
    targets: list[Target] = []
    names: dict[str, str] = {}
    owners: dict[tuple[str, Selector], str] = {}
    for reader in top.items("targets"):
        name = reader.text("name", pattern=_NAME)
        if name and name in names:
            reader.problem("name", f"{name} is used by {names[name]} already")
        names.setdefault(name, reader.path)
        backend, host, selectors = _members(reader, hosts, commands)
        for selector in selectors:
            if (
                not selector.empty
                and (owner := owners.setdefault((host, selector), reader.path)) != reader.path
            ):
                reader.problem("", f"{selector} belongs to {owner} already: one container, one owner")
        targets.append(Target(name, backend, host, selectors, _rules(reader, defaults)))
        reader.done()
    if not targets:
        top.problem("targets", "is empty: name at least one target and its container")
    return tuple(targets)


def _members(
    reader: Reader, hosts: tuple[DockerHost, ...], commands: tuple[FixedCommand, ...]
) -> tuple[Backend, str, tuple[Selector, ...]]:
    given = [kind for kind in ("docker", "swarm", "command") if reader.has(kind)]
    if len(given) != 1:
        have = " and ".join(given) if given else "none"
        reader.problem("", f"needs exactly one of docker, swarm, command ({have} given): what is restarted?")
        return Backend.DOCKER, _LOCAL, ()
    if given[0] == "command":
        command = reader.text("command", choices=[c.name for c in commands] or ["(name it under commands)"])
        return Backend.COMMAND, "command", (Selector(command=command),)
    raw = reader.raw(given[0])
    if given[0] == "swarm":
        at = reader.mapping("swarm")
        host = _host(at, hosts)
        selector = Selector(service=at.text("service", pattern=_NAME))
        at.done()
        return Backend.SWARM, host, (selector,)
    members = raw if isinstance(raw, list) else [raw]
    found: list[Selector] = []
    host_of_all: set[str] = set()
    for index, value in enumerate(members):
        key = f"docker[{index}]" if isinstance(raw, list) else "docker"
        at = Reader(reader.problems, reader.where(key), value)
        host_of_all.add(_host(at, hosts))
        found.append(_selector(at))
        at.done()
    if not members:
        reader.problem("docker", "is an empty list: name at least one container")
    if len(host_of_all) > 1:
        reader.problem("docker", "a group's containers must be on one host")
    if len(set(found)) < len(found):
        reader.problem("docker", "the same container is there twice")
    return Backend.DOCKER, next(iter(host_of_all), _LOCAL), tuple(found)


def _host(reader: Reader, hosts: tuple[DockerHost, ...]) -> str:
    names = [h.name for h in hosts]
    if reader.has("host"):
        return reader.text("host", choices=names)
    if len(names) > 1:
        reader.problem("host", f"is required with several docker.hosts; one of {', '.join(names)}")
    return names[0] if names else _LOCAL


def _selector(reader: Reader) -> Selector:
    compose = reader.has("compose_project") or reader.has("compose_service")
    kinds = [
        k
        for k, there in (
            ("compose", compose),
            ("label", reader.has("label")),
            ("container", reader.has("container")),
        )
        if there
    ]
    if len(kinds) != 1:
        reader.problem("", "needs exactly one of: compose_project with compose_service, label, container")
    selector = Selector(
        compose_project=reader.text("compose_project", pattern=_NAME) if compose else None,
        compose_service=reader.text("compose_service", pattern=_NAME) if compose else None,
        compose_number=reader.integer("compose_number", None, low=1) if compose else None,
        label=reader.text("label", None, pattern=r"[^=\s][^=]*(=.+)?"),
        container=reader.text("container", None, pattern=r"[A-Za-z0-9][A-Za-z0-9_.-]*"),
    )
    if selector.container and re.fullmatch(r"[0-9a-f]{12}|[0-9a-f]{64}", selector.container):
        reader.problem(
            "container", "is an id, which changes with every deployment; give its name or compose labels"
        )
    return selector
