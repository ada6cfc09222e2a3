"""Reads the targets of a remediator.yml: each exactly one container, service, command or ordered group."""

from __future__ import annotations

import re

from llm_common.config import Reader
from llm_common.config.forms import DNS_LABEL, Form
from llm_remediator.config_limits import read_rules
from llm_remediator.config_places import LOCAL
from llm_remediator.containers import Selector
from llm_remediator.rules import Backend, Rules, Target
from llm_remediator.settings import DockerHost, FixedCommand

_NAME = Form(
    r"[A-Za-z0-9][A-Za-z0-9_.:/@-]{0,199}", "a name of letters, digits and _ . : / @ -, which begins with a letter or digit"
)
_SELECTOR = Form(
    r"[A-Za-z0-9./_-]+=[A-Za-z0-9._-]+(,[A-Za-z0-9./_-]+=[A-Za-z0-9._-]+)*", "a label selector such as app=vllm,tier=gpu"
)


def read_targets(
    top: Reader, defaults: Rules, hosts: tuple[DockerHost, ...], commands: tuple[FixedCommand, ...]
) -> tuple[Target, ...]:
    """`targets`, unique in name and in what they restart."""
    targets: list[Target] = []
    names: dict[str, str] = {}
    owners: dict[tuple[str, Selector], str] = {}
    for reader in top.items("targets"):
        name = reader.text("name", form=_NAME)
        if name and name in names:
            reader.problem("name", f"{name} is used by {names[name]} already")
        names.setdefault(name, reader.path)
        backend, host, selectors = _members(reader, hosts, commands)
        for selector in selectors:
            if not selector.empty and (owner := owners.setdefault((host, selector), reader.path)) != reader.path:
                reader.problem("", f"{selector} belongs to {owner} already: one container, one owner")
        targets.append(Target(name, backend, host, selectors, read_rules(reader, defaults, [c.name for c in commands])))
        reader.done()
    if not targets and not top.has("discovery"):
        top.problem("targets", "is empty: name at least one target and its container")
    return tuple(targets)


def _members(
    reader: Reader, hosts: tuple[DockerHost, ...], commands: tuple[FixedCommand, ...]
) -> tuple[Backend, str, tuple[Selector, ...]]:
    given = [kind for kind in ("docker", "swarm", "kubernetes", "command") if reader.has(kind)]
    if len(given) != 1:
        have = " and ".join(given) if given else "none"
        reader.problem("", f"needs exactly one of docker, swarm, kubernetes, command ({have} given): what is restarted?")
        return Backend.DOCKER, LOCAL, ()
    if given[0] == "command":
        command = reader.text("command", choices=[c.name for c in commands] or ["(name it under commands)"])
        return Backend.COMMAND, "command", (Selector(command=command),)
    if given[0] == "kubernetes":
        return Backend.KUBERNETES, "kubernetes", (_pods(reader.mapping("kubernetes")),)
    raw = reader.raw(given[0])
    if given[0] == "swarm":
        at = reader.mapping("swarm")
        host = _host(at, hosts)
        selector = Selector(service=at.text("service", form=_NAME))
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
    return Backend.DOCKER, next(iter(host_of_all), LOCAL), tuple(found)


def _pods(at: Reader) -> Selector:
    """A label selector by equality alone: what it matches must be seen at a glance, and must be one pod."""
    selector = Selector(
        pods=at.text("selector", form=_SELECTOR),
        namespace=at.text("namespace", None, form=DNS_LABEL),
        pod_container=at.text("container", None, form=DNS_LABEL),
    )
    at.done()
    return selector


def _host(reader: Reader, hosts: tuple[DockerHost, ...]) -> str:
    names = [h.name for h in hosts]
    if reader.has("host"):
        return reader.text("host", choices=names)
    if len(names) > 1:
        reader.problem("host", f"is required with several docker.hosts; one of {', '.join(names)}")
    return names[0] if names else LOCAL


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
        compose_project=reader.text("compose_project", form=_NAME) if compose else None,
        compose_service=reader.text("compose_service", form=_NAME) if compose else None,
        compose_number=reader.integer("compose_number", None, low=1) if compose else None,
        label=reader.text("label", None, form=Form(r"[^=\s][^=]*(=.+)?", "a label: KEY or KEY=VALUE")),
        container=reader.text("container", None, form=Form(r"[A-Za-z0-9][A-Za-z0-9_.-]*", "the name of a container")),
    )
    if selector.container and re.fullmatch(r"[0-9a-f]{12}|[0-9a-f]{64}", selector.container):
        reader.problem("container", "is an id, which changes with every deployment; give its name or compose labels")
    return selector
