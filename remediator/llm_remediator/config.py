"""remediator.yml, strictly: every problem at once, with its key path and the remedy.

The file alone says which container a target is; nothing from an alert ever adds to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from llm_common.config import ConfigError, Reader, format_duration, load_yaml
from llm_common.listen import is_loopback
from llm_common.web_config import WebConfig
from llm_remediator.config_limits import RESTARTABLE, STATES, read_diagnostics, read_fleet, read_rules
from llm_remediator.config_places import (
    read_commands,
    read_endpoint,
    read_endpoints,
    read_hosts,
    read_kubernetes,
    read_labelled,
)
from llm_remediator.config_targets import read_targets
from llm_remediator.rules import Backend, Mode, Rules
from llm_remediator.settings import Config, Diagnostics, DockerHost, Endpoint, FixedCommand, TargetBook

__all__ = [
    "RESTARTABLE",
    "STATES",
    "Config",
    "Diagnostics",
    "DockerHost",
    "Endpoint",
    "FixedCommand",
    "check_listen",
    "load",
    "parse",
]


def load(path: str | Path) -> Config:
    """Read and check the file; `ConfigError` lists everything that is wrong with it."""
    duplicates: list[str] = []
    return parse(load_yaml(path, duplicates), str(path), duplicates)


def parse(document: object, name: str = "remediator.yml", known_problems: Sequence[str] = ()) -> Config:
    """Check a document; `ConfigError` lists everything that is wrong with it, the known problems first."""
    problems = list(known_problems)
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
    exporter = read_endpoint(top, "exporter", required=True)
    alertmanagers = read_endpoints(top, "alertmanagers")
    if mode is Mode.ACT and trigger == "alertmanager" and not alertmanagers:
        top.problem(
            "alertmanagers",
            "is required in mode act: each is asked before a restart whether the alert still fires and "
            "nobody silenced it; without any Alertmanager set trigger: exporter",
        )
    if trigger == "exporter" and alertmanagers:
        top.problem("alertmanagers", "is not used with trigger: exporter; remove one of the two")
    hosts = read_hosts(top.mapping("docker"))
    commands = read_commands(top)
    kubernetes = read_kubernetes(top)
    defaults = top.mapping("defaults")
    rules = read_rules(defaults, Rules(), [c.name for c in commands])
    defaults.done()
    labelled = read_labelled(top, hosts)
    targets = read_targets(top, rules, hosts, commands)
    config = Config(
        mode=mode,
        trigger=trigger,
        exporter=exporter or Endpoint(""),
        alertmanagers=alertmanagers,
        journal=top.text("journal"),
        targets=TargetBook(targets) if labelled else targets,
        labelled=labelled,
        rules=rules,
        docker_hosts=hosts,
        commands=commands,
        kubernetes=kubernetes,
        notify=read_endpoints(top, "notify"),
        grafana=read_endpoint(top, "grafana", required=False),
        fleet=read_fleet(top.mapping("fleet")),
        diagnostics=read_diagnostics(top.mapping("diagnostics")),
        pause_file=top.text("pause_file", None),
        audit_log=top.text("audit_log", None),
        interval=top.duration("interval", 30.0, low=0.2),
        alert_ttl=top.duration("alert_ttl", 300.0, low=1.0),
        keep=top.duration("keep", 90 * 86400.0, low=86400.0),
    )
    _check_keep(top, config)
    if kubernetes is None and any(target.backend is Backend.KUBERNETES for target in config.targets):
        top.problem("kubernetes", "is required, since a target is a pod; `kubernetes: {}` uses the pod's service account")
    top.done()
    return config


def _check_keep(top: Reader, config: Config) -> None:
    """What the journal forgets no limit can count."""
    all_rules = [(f"targets[{index}]", target.rules) for index, target in enumerate(config.targets)]
    spans = [("fleet", "budget.per", config.fleet.budget.per)]
    for where, rules in (*all_rules, ("defaults", config.rules)):
        spans.append((where, "budget.per", rules.budget.per))
        spans.append((where, "cooldown_max", rules.cooldown_max))
        spans.append((where, "min_healthy", rules.min_healthy))
    who, what, longest = max(spans, key=lambda span: span[2])
    if longest > config.keep:
        short = f"is {format_duration(config.keep)}, but {who} looks back {format_duration(longest)} ({what})"
        top.problem("keep", f"{short}; keep as long")
