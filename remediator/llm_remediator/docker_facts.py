"""Docker's JSON read into facts (`containers.Container`, `Match`, `Process`, `Event`). Pure.

Sources: Docker Engine API 1.41 to 1.56 (moby `daemon/container/state.go`, `api/types`), Docker Compose's
labels (`pkg/api/labels.go`). Podman's compatible API sends the same names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from llm_remediator.containers import Container, Event, Match, Process, Selector

COMPOSE = "com.docker.compose."
FULL_ID = re.compile(r"[0-9a-f]{64}")
NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
_RENAMED = re.compile(r"[0-9a-f]{12}_.+")
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")
_WATCHDOG_IMAGE = re.compile(r"autoheal|deunhealth|docker-restarter|container-?healer", re.IGNORECASE)
_NO = frozenset({"", "0", "false", "no", "off"})
PS_ARGS = "-o pid,ppid,stat,etimes,wchan:24,comm"


def unix_time(text: str | None) -> float | None:
    """RFC 3339 with nanoseconds as Docker prints it, as Unix seconds; None for its zero time."""
    found = _TIME.fullmatch(text or "")
    if not found:
        return None
    whole, fraction, zone = found.groups()
    when = datetime.fromisoformat(whole + ("+00:00" if zone == "Z" else zone))
    if when.year <= 1:
        return None
    return when.astimezone(UTC).timestamp() + float(fraction or 0)


def api_version(version: Mapping[str, Any], newest: str) -> str:
    """The version to speak: the daemon's, at most `newest` (ours), at least the daemon's minimum."""

    def parts(text: str) -> tuple[int, ...]:
        return tuple(int(p) for p in re.findall(r"\d+", text)) or (0,)

    server = str(version.get("ApiVersion") or newest)
    least = str(version.get("MinAPIVersion") or "1.24")
    chosen = min(server, newest, key=parts)
    return max(chosen, least, key=parts)


def version_warnings(version: str) -> tuple[str, ...]:
    """Engine versions that lose containers on a restart."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    numbers = tuple(int(n) for n in found.groups()) if found else ()
    if (24, 0, 0) <= numbers <= (24, 0, 6):
        return (
            f"Docker Engine {version} can leave a container stopped when the client goes away during a "
            "restart (moby PR 46688); update to 24.0.7 or later",
        )
    return ()


def list_filters(selector: Selector) -> dict[str, list[str]]:
    """`filters` for `GET /containers/json`; `ValueError` for what would match too much."""
    if selector.compose_project and selector.compose_service:
        labels = [
            f"{COMPOSE}project={selector.compose_project}",
            f"{COMPOSE}service={selector.compose_service}",
        ]
        if selector.compose_number is not None:
            labels.append(f"{COMPOSE}container-number={selector.compose_number}")
        return {"label": labels}
    if selector.label and selector.label.partition("=")[0].strip():
        return {"label": [selector.label]}
    if selector.container:
        if not NAME.fullmatch(selector.container):
            raise ValueError(f"{selector.container!r} is no container name")
        return {"name": [f"^/?{re.escape(selector.container)}$"]}
    raise ValueError("an empty selector would match every container")


def read_matches(listed: Sequence[Mapping[str, Any]], selector: Selector) -> tuple[Match, ...]:
    """The listed containers that really match: filters are checked again, for a proxy may drop them."""
    found = []
    for entry in listed:
        labels = entry.get("Labels") or {}
        if labels.get(f"{COMPOSE}oneoff", "False").lower() == "true":
            continue
        names = [str(n).lstrip("/") for n in entry.get("Names") or []]
        if not _selected(selector, labels, names):
            continue
        name = selector.container or (names[0] if names else "")
        found.append(
            Match(
                id=str(entry.get("Id", "")),
                name=name,
                state=str(entry.get("State", "")),
                image=str(entry.get("Image", "")),
                replaces=labels.get(f"{COMPOSE}replace"),
                renamed=bool(_RENAMED.fullmatch(name)) and bool(labels.get(f"{COMPOSE}service")),
            )
        )
    return tuple(sorted(found, key=lambda m: m.name))


def _selected(selector: Selector, labels: Mapping[str, str], names: Sequence[str]) -> bool:
    if selector.compose_project:
        number = selector.compose_number
        return (
            labels.get(f"{COMPOSE}project") == selector.compose_project
            and labels.get(f"{COMPOSE}service") == selector.compose_service
            and (number is None or labels.get(f"{COMPOSE}container-number") == str(number))
        )
    if selector.label:
        key, equals, value = selector.label.partition("=")
        return key in labels and (not equals or labels[key] == value)
    return selector.container is not None and selector.container in names


def read_container(raw: Mapping[str, Any]) -> Container:
    """`GET /containers/ID/json`. A missing `State` is a `ValueError`: nothing may be guessed from it."""
    state, config, host = raw.get("State"), raw.get("Config") or {}, raw.get("HostConfig") or {}
    if not isinstance(state, Mapping) or "Running" not in state or not FULL_ID.fullmatch(str(raw.get("Id"))):
        raise ValueError("the answer to inspect has no full id or no State: is this a Docker API?")
    labels = {str(k): str(v) for k, v in (config.get("Labels") or {}).items()}
    started = str(state.get("StartedAt") or "")
    return Container(
        id=str(raw["Id"]),
        name=str(raw.get("Name", "")).lstrip("/"),
        state=str(state.get("Status", "")),
        running=bool(state["Running"]),
        paused=bool(state.get("Paused")),
        restarting=bool(state.get("Restarting")),
        started_at=unix_time(started),
        started_at_raw=started,
        finished_at=unix_time(state.get("FinishedAt")),
        exit_code=state.get("ExitCode"),
        error=str(state.get("Error") or ""),
        oom_killed=bool(state.get("OOMKilled")),
        restart_count=int(raw.get("RestartCount") or 0),
        pid=int(state.get("Pid") or 0),
        image=str(config.get("Image", "")),
        restart_policy=str((host.get("RestartPolicy") or {}).get("Name") or ""),
        stop_timeout=config.get("StopTimeout"),
        init=bool(host.get("Init")),
        health=(state.get("Health") or {}).get("Status"),
        owner=_owner(labels),
        watchdog_labels=_watchdog_labels(labels, config),
        labels=labels,
        network_mode=str(host.get("NetworkMode") or ""),
        addresses=_addresses(raw, config),
        ports=tuple(sorted({int(p.partition("/")[0]) for p in config.get("ExposedPorts") or {}})),
        published=_published(raw),
    )


def _owner(labels: Mapping[str, str]) -> str | None:
    if "com.docker.swarm.task.id" in labels:
        return "swarm"
    if "io.kubernetes.pod.uid" in labels or "io.kubernetes.pod.name" in labels:
        return "kubernetes"
    if "PODMAN_SYSTEMD_UNIT" in labels:
        return "podman-systemd"
    return None


def _watchdog_labels(labels: Mapping[str, str], config: Mapping[str, Any]) -> tuple[str, ...]:
    found = [
        f"{key}={value}"
        for key, value in sorted(labels.items())
        if (key in ("autoheal", "deunhealth.restart.on.unhealthy") and value.lower() not in _NO)
    ]
    action = str(config.get("HealthcheckOnFailureAction") or "").lower()
    if action in ("restart", "kill", "stop"):
        found.append(f"health-on-failure={action}")
    return tuple(found)


def _addresses(raw: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[str, ...]:
    found = {str(raw.get("Name", "")).lstrip("/"), str(config.get("Hostname") or "")}
    networks = (raw.get("NetworkSettings") or {}).get("Networks") or {}
    for network in networks.values():
        network = network or {}
        for key in ("IPAddress", "GlobalIPv6Address"):
            found.add(str(network.get(key) or ""))
        for key in ("Aliases", "DNSNames"):
            found.update(str(n) for n in network.get(key) or [])
    return tuple(sorted(found - {""}))


def _published(raw: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    ports = (raw.get("NetworkSettings") or {}).get("Ports") or {}
    found = set()
    for bindings in ports.values():
        for binding in bindings or []:
            if str(binding.get("HostPort", "")).isdigit():
                found.add((str(binding.get("HostIp") or ""), int(binding["HostPort"])))
    return tuple(sorted(found))


def read_processes(raw: Mapping[str, Any]) -> tuple[Process, ...]:
    """`GET /containers/ID/top` with `PS_ARGS`; lines that cannot be read are left out."""
    titles = [str(t).upper() for t in raw.get("Titles") or []]
    found = []
    for row in raw.get("Processes") or []:
        cells = dict(zip(titles, (str(c) for c in row), strict=False))
        if not cells.get("PID", "").isdigit():
            continue
        elapsed = cells.get("ELAPSED", "")
        found.append(
            Process(
                pid=int(cells["PID"]),
                ppid=int(cells["PPID"]) if cells.get("PPID", "").isdigit() else 0,
                stat=cells.get("STAT") or cells.get("S") or "",
                wchan=cells.get("WCHAN", ""),
                elapsed=float(elapsed) if elapsed.isdigit() else None,
                command=cells.get("COMMAND") or cells.get("CMD") or "",
            )
        )
    return tuple(found)


def read_event(raw: Mapping[str, Any]) -> Event:
    """One line of `GET /events`. Old daemons say `status`, newer ones `Action`."""
    attributes = (raw.get("Actor") or {}).get("Attributes") or {}
    nanos = raw.get("timeNano")
    at = float(nanos) / 1e9 if nanos else float(raw.get("time") or 0)
    code = str(attributes.get("exitCode", ""))
    return Event(
        at=at,
        action=unquote(str(raw.get("Action") or raw.get("status") or "")),
        signal=attributes.get("signal"),
        exit_code=int(code) if code.lstrip("-").isdigit() else None,
    )


def looks_like_watchdog(image: str) -> bool:
    """True for images of tools that restart unhealthy containers on their own."""
    return bool(_WATCHDOG_IMAGE.search(image))
