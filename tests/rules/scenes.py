"""A small language for promtool's input series.

A line of time is written as pieces `VALUE*DURATION`: `0*5m 1*10m`; `_` is a scrape that failed, `0..300` a straight line
(a counter, or a gauge that grows), `t` the clock itself and `t-600` the clock as it was. A scene has one step.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

RULES = Path(__file__).parents[2] / "rules"
ALERTS = RULES / "alerts.yml"
STATES = (
    "starting",
    "idle",
    "busy",
    "stalled",
    "stuck",
    "starved",
    "sleeping",
    "failed",
    "unreachable",
    "down",
    "unknown",
)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def alert_rules() -> dict[str, dict[str, Any]]:
    """Every alert of the rules file by its name, so that none escapes the tests."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    named = {rule["alert"]: rule for rule in rules}
    assert len(named) == len(rules), "an alert is defined twice"
    return named


def seconds(duration: str) -> int:
    """`1h30m` in seconds."""
    parts = re.findall(r"(\d+)([smhd])", duration)
    assert parts, duration
    return sum(int(n) * _UNITS[u] for n, u in parts)


def pieces(line: str) -> list[tuple[str, int]]:
    """The pieces of a line of time: value and seconds."""
    return [(value, seconds(length)) for value, _, length in (p.partition("*") for p in line.split())]


def samples(line: str, step: int) -> list[str]:
    """promtool's explicit notation of a line of time."""
    found: list[str] = []
    for value, length in pieces(line):
        count, start = length // step, len(found)
        found += [_sample(value, i, count, (start + i) * step, start * step) for i in range(count)]
    return found


def _sample(value: str, i: int, count: int, now: int, since: int) -> str:
    if ".." in value:
        low, high = (float(x) for x in value.split(".."))
        return f"{low + (high - low) * i / max(1, count - 1):.6g}"
    if value == "since":
        return str(since)
    if value.startswith("t"):
        return str(now + int(value[1:] or 0))
    return value


def states(line: str, **labels: str) -> dict[str, str]:
    """The StateSet of a target that goes through these states, and since when it is in each."""
    went = pieces(line)
    found = {
        series("llm_health_state", **labels, llm_health_state=state): " ".join(
            f"{'_' if at == '_' else int(at == state)}*{length}s" for at, length in went
        )
        for state in STATES
        if any(at == state for at, _ in went)
    }
    since = " ".join(f"{'_' if at == '_' else 'since'}*{length}s" for at, length in went)
    return found | {series("llm_target_state_since_timestamp_seconds", **labels): since}


def series(name: str, **labels: str) -> str:
    """A series in PromQL's notation."""
    return name + "{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "}"


@dataclass(frozen=True)
class Scene:
    """What Prometheus scrapes, and what the alert must do.

    `fires`: moments when it fires, `silent`: moments when it does not; None in `fires` means never at all.
    """

    alert: str
    world: dict[str, str]
    fires: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=lambda: {"target": "a"})
    step: str = "15s"
    why: str = ""


def with_label(name: str, **added: str) -> str:
    """The same series with more labels; those that it has stay."""
    base, _, rest = name.partition("{")
    own = rest.rstrip("}")
    more = ",".join(f'{k}="{v}"' for k, v in added.items() if f"{k}=" not in own)
    return f"{base}{{{','.join(x for x in (own, more) if x)}}}"
