"""Configuration by environment: one field, one variable, one row of the table in docs/how-to/heartbeat.md."""

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

PREFIX = "LLM_HEARTBEAT_"

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|)")
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


def _option(default: Any, kind: str, doc: str, least: float = 0.0) -> Any:
    return field(default=default, metadata={"kind": kind, "doc": doc, "least": least})


@dataclass(frozen=True, slots=True)
class Settings:
    """All options. Durations are seconds; an empty or missing variable keeps the default."""

    listen: str = _option(
        "",
        "address",
        "Side port, `host:port` or `host:first-last`; answers even while the loop is blocked. Empty: none.",
    )
    prefix: str = _option("/healthz", "path", "Path before `/startup`, `/live`, `/ready`.")
    interval: float = _option(0.1, "duration", "Pause between two heartbeats of the loop.", least=0.001)
    window: float = _option(30.0, "duration", "`llm_event_loop_lag_seconds` is the largest delay within it.", least=0.1)
    blocked_after: float = _option(1.0, "duration", "From here on a delay is a block: counted, culprit named.", least=0.01)
    live_after: float = _option(30.0, "duration", "`live` turns 503 when the loop has been blocked for longer.", least=0.1)
    ready_lag: float = _option(5.0, "duration", "`ready` turns 503 above this lag. 0: never.")
    ready_queue: float | None = _option(None, "number", "`ready` turns 503 at this many waiting requests. 0: never.")
    ready_kv: float | None = _option(None, "ratio", "`ready` turns 503 at this share of the KV cache in use. 0: never.")
    ready_gpu: float | None = _option(
        None,
        "ratio",
        "`ready` turns 503 at this share of GPU memory in use. 0: never. Engines that preallocate sit above 0.9.",
    )
    clear: float = _option(0.8, "ratio", "A tripped limit clears at or below this share of itself.")
    hold: float = _option(10.0, "duration", "A check changes at most once in this time.")
    poll: float = _option(1.0, "duration", "Pause between two readings of queue, KV cache and GPU memory.", least=0.01)
    startup_budget: float = _option(0.0, "duration", "Shown against the elapsed time in `startup`. 0: none.")
    manual_startup: bool = _option(
        False, "flag", "Loaded only when the application calls `loaded()`, not at the end of ASGI's lifespan startup."
    )
    exit_on_failed_load: bool = _option(False, "flag", "A failed load ends the process with status 1.")
    rewarm_after_oom: bool = _option(False, "flag", "An escaped `OutOfMemoryError` turns `ready` off until `warmed_up()`.")
    handle_sigterm: bool = _option(True, "flag", "SIGTERM turns `ready` off at once, then goes to the server.")
    drain_delay: float = _option(
        0.0, "duration", "The server gets SIGTERM this much later (servers that use `signal.signal`, as uvicorn)."
    )
    drain_limit: float = _option(
        0.0, "duration", "Requests still in flight this long after SIGTERM are cancelled. 0: the server decides."
    )
    dependencies: str = _option("", "list", "Essential ones, `name=tcp://host:port` or `name=http://host/path`, by comma.")
    dependency_timeout: float = _option(0.5, "duration", "Time that one check of a dependency may take.", least=0.001)
    dependency_every: float = _option(10.0, "duration", "Pause between two checks of a dependency, jittered.", least=0.01)
    dependency_may_leave: float = _option(
        0.0, "ratio", "Share of the replicas that may leave for one dependency. 0: none (fail open); 1: all."
    )
    replica: str = _option("", "name", "What tells this replica from others. Empty: the host name.")
    history: int = _option(20, "count", "Changes that are kept and shown.")
    details: bool = _option(True, "flag", "Culprit, stack and changes in the bodies on the main port.")
    state_dir: str = _option(
        "", "path", "Where the processes of one server meet; made if need be. Empty: `PROMETHEUS_MULTIPROC_DIR`, if set."
    )
    vllm_startup: bool = _option(False, "flag", "vLLM plugin: side port from before the weights load.")
    vllm_steps: bool = _option(False, "flag", "vLLM plugin: `llm_engine_steps_total{lane}`.")

    @property
    def endpoints(self) -> dict[str, str]:
        """Path to name."""
        return {f"{self.prefix.rstrip('/')}/{name}": name for name in ("startup", "live", "ready")}

    @property
    def replica_name(self) -> str:
        """The configured name, else the host's (a pod's name in Kubernetes)."""
        return self.replica or socket.gethostname()


def read(environ: Mapping[str, str] | None = None) -> tuple[Settings, tuple[str, ...]]:
    """Settings and what was wrong with the variables; a wrong one keeps its default.

    A typing error must not end somebody else's server, so nothing here raises: the caller logs the problems.
    """
    environ = os.environ if environ is None else environ
    known = {variable(option): option for option in fields(Settings)}
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or not environ[name].strip():
            continue
        if name not in known:
            problems.append(f"{name}: no such option; see docs/how-to/heartbeat.md for the list")
            continue
        option = known[name]
        try:
            values[option.name] = _parse(option, environ[name].strip())
        except ValueError as error:
            problems.append(f"{name}: {error}; the default {option.default!r} applies")
    return Settings(**values), tuple(problems)


def variable(option: Field[Any]) -> str:
    """Name of the environment variable of one field."""
    return PREFIX + option.name.upper()


def table() -> str:
    """The options as a Markdown table, for the docs."""
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    rows += [f"| `{variable(o)}` | {_shown(o)} | {o.metadata['doc']} |" for o in fields(Settings)]
    return "\n".join(rows) + "\n"


def _shown(option: Field[Any]) -> str:
    default: Any = option.default
    if default is None or default == "":
        return "off" if default is None else "empty"
    if option.metadata["kind"] == "duration":
        return f"`{_seconds(default)}`"
    return f"`{default}`" if isinstance(default, str) else f"`{default:g}`"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:g}ms" if 0 < seconds < 1 else f"{seconds:g}s"


def _parse(option: Field[Any], text: str) -> Any:
    kind = option.metadata["kind"]
    if kind == "duration":
        return _duration(text, option.metadata["least"])
    if kind == "flag":
        return _flag(text)
    if kind in ("number", "ratio", "count"):
        return _number(kind, text)
    if kind == "path" and text.startswith("/"):
        return text.rstrip("/") or "/"
    if kind == "path":
        raise ValueError(f"{text!r} does not begin with /")
    if kind == "address":
        parse_listen(text)
    return text


def _duration(text: str, least: float) -> float:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write 250ms, 30s, 5m or 1h")
    seconds = float(match[1]) * _UNITS[match[2]]
    if seconds < least:
        raise ValueError(f"{text!r} is below {_seconds(least)}")
    return seconds


def _flag(text: str) -> bool:
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    raise ValueError(f"{text!r} is neither 1 nor 0")


def _number(kind: str, text: str) -> float:
    try:
        value = int(text) if kind == "count" else float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not 0 <= value < float("inf") or (kind == "ratio" and value > 1):
        raise ValueError(f"{text!r} is out of range" + ("; a ratio lies between 0 and 1" if kind == "ratio" else ""))
    return value


def parse_listen(text: str) -> tuple[str, range]:
    """`127.0.0.1:9109`, `:9109` (all addresses), `[::1]:9109` or a range of ports, `127.0.0.1:9109-9116`."""
    host, colon, ports = text.rpartition(":")
    first, _, last = ports.partition("-")
    if not colon or not first.isdigit() or not (last or first).isdigit():
        raise ValueError(f"{text!r} is not an address; write 127.0.0.1:9109")
    span = range(int(first), int(last or first) + 1)
    if not span or not 0 <= span[0] <= span[-1] <= 65535:
        raise ValueError(f"{text!r} has no valid port between 0 and 65535")
    return host.strip("[]"), span
