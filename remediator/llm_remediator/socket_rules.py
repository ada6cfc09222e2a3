"""What the socket proxy lets through: reads that the remediator needs, restart and start by full id. Pure.

Whoever may create a container through Docker's socket is root on the host, so everything is refused that is
not listed here, spelled exactly. Query keys are listed too: `ps_args=e` would print environments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from llm_remediator.docker_facts import PS_ARGS

PROXY_HEADER = "Stuckproof-Proxy"
"""In every answer of the proxy, so that its client need not warn about a whole Docker API in the open."""
_ID = r"[0-9a-f]{64}"
_SERVICE = r"[0-9a-z]{25}"
_ANY = r"[\s\S]{0,4000}"
_DIGITS = r"[0-9]{1,5}"
_TIME = r"[0-9]{1,12}(\.[0-9]{1,9})?"
_YES = r"0|1|true|false"


@dataclass(frozen=True, slots=True)
class Rule:
    """One allowed call: its path without the version, and the query keys with their values' patterns."""

    method: str
    path: str
    query: Mapping[str, str]
    acts: bool = False
    needs: tuple[str, ...] = ()
    swarm: bool = False


RULES: tuple[Rule, ...] = (
    Rule("GET", "/_ping", {}),
    Rule("HEAD", "/_ping", {}),
    Rule("GET", "/version", {}),
    Rule("GET", "/containers/json", {"all": _YES, "filters": _ANY, "limit": _DIGITS}),
    Rule("GET", f"/containers/{_ID}/json", {}),
    Rule(
        "GET",
        f"/containers/{_ID}/logs",
        {"stdout": _YES, "stderr": _YES, "timestamps": _YES, "tail": _DIGITS, "follow": "0|false"},
        needs=("tail",),
    ),
    Rule("GET", f"/containers/{_ID}/top", {"ps_args": re.escape(PS_ARGS)}, needs=("ps_args",)),
    Rule("GET", "/events", {"since": _TIME, "until": _TIME, "filters": _ANY}, needs=("since", "until")),
    Rule("POST", f"/containers/{_ID}/restart", {"t": _DIGITS}, acts=True, needs=("t",)),
    Rule("POST", f"/containers/{_ID}/start", {}, acts=True),
    Rule("GET", "/services", {"filters": _ANY}, swarm=True),
    Rule("GET", f"/services/{_SERVICE}", {}, swarm=True),
    Rule("GET", "/tasks", {"filters": _ANY}, swarm=True),
    Rule(
        "GET",
        f"/services/{_SERVICE}/logs",
        {"stdout": _YES, "stderr": _YES, "timestamps": _YES, "tail": _DIGITS, "follow": "0|false"},
        needs=("tail",),
        swarm=True,
    ),
    Rule("POST", f"/services/{_SERVICE}/update", {"version": r"[0-9]{1,20}"}, acts=True, swarm=True),
)
_VERSION = re.compile(r"/v1\.[0-9]{1,2}(?=/)")


@dataclass(frozen=True, slots=True)
class Call:
    """An allowed call, rebuilt from its checked parts: nothing else of the request is passed on."""

    rule: Rule
    version: str
    path: str
    query: str

    @property
    def target(self) -> str:
        """What is asked of the daemon."""
        return f"{self.version}{self.path}" + (f"?{self.query}" if self.query else "")

    @property
    def subject(self) -> str:
        """The container's or service's id, or the empty string."""
        parts = self.path.split("/")
        return parts[2] if len(parts) > 2 and re.fullmatch(f"{_ID}|{_SERVICE}", parts[2]) else ""


def judge(method: str, raw_target: str, headers: Mapping[str, str], *, swarm: bool) -> Call | str:
    """The call, or a sentence that says why it is refused. `raw_target` is undecoded, as it came."""
    if "Origin" in headers or "Sec-Fetch-Site" in headers:
        return "browsers have no business here"
    raw_path, _, raw_query = raw_target.partition("?")
    version = _VERSION.match(raw_path)
    path = raw_path[version.end() :] if version else raw_path
    rule = next((r for r in RULES if r.method == method and re.fullmatch(r.path, path)), None)
    if rule is None:
        return (
            f"{method} {raw_path[:200]} is not allowed: this proxy lets only ping, version, list, inspect, logs, "
            "top and events through, and restart and start of a container by its full 64-hex id"
        )
    if rule.swarm and not swarm:
        return f"{method} {raw_path[:200]} is not allowed: start the proxy with --swarm if services are meant"
    if not rule.swarm or rule.method == "GET":
        length = headers.get("Content-Length", "0")
        if "Transfer-Encoding" in headers or length != "0":
            return f"{method} {raw_path[:200]} takes no body"
    try:
        pairs = parse_qsl(raw_query, keep_blank_values=True, strict_parsing=True) if raw_query else []
    except ValueError:
        return "the query cannot be read"
    keys = [key for key, _ in pairs]
    for key, value in pairs:
        if keys.count(key) > 1 or key not in rule.query or not re.fullmatch(rule.query[key], value):
            return f"{method} {path}: {key[:50]}={value[:100]} is not allowed"
    if missing := [key for key in rule.needs if key not in keys]:
        return f"{method} {path}: {', '.join(missing)} must be given"
    return Call(rule, version.group() if version else "", path, urlencode(pairs))


def without_secrets(call: Call, body: Any) -> Any:
    """The daemon's JSON without environments and command lines: API keys are kept there."""
    if call.rule.path == "/containers/json" and isinstance(body, list):
        return [{k: v for k, v in c.items() if k != "Command"} for c in body]
    if call.rule.path.endswith("/json") and isinstance(body, dict):
        secret = ("Env", "Cmd", "Entrypoint", "Healthcheck")
        config = {k: v for k, v in (body.get("Config") or {}).items() if k not in secret}
        rest = {k: v for k, v in body.items() if k not in ("Args", "Path", "Config", "GraphDriver", "Mounts")}
        host = body.get("HostConfig") or {}
        kept = ("RestartPolicy", "Init", "NetworkMode", "PidMode")
        state = {k: v for k, v in (body.get("State") or {}).items() if k != "Health"}
        health = (body.get("State") or {}).get("Health")
        if health:
            state["Health"] = {k: health.get(k) for k in ("Status", "FailingStreak")}
        return {**rest, "Config": config, "State": state, "HostConfig": {k: host[k] for k in kept if k in host}}
    return body


def only_forced(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """True if a service update changes nothing but `TaskTemplate.ForceUpdate`: no image, no mount, no command."""

    def bare(spec: Mapping[str, Any]) -> dict[str, Any]:
        task = {k: v for k, v in (spec.get("TaskTemplate") or {}).items() if k != "ForceUpdate"}
        return {**spec, "TaskTemplate": task}

    return bare(old) == bare(new)
