"""The shipped rules with every duration shortened by one factor, for incidents played fast."""

from __future__ import annotations

import re
from typing import Any

import yaml

from rules.scenes import ALERTS, seconds


def shortened_rules(speed: float) -> dict[str, Any]:
    """Ranges, offsets, `for`, `keep_firing_for` and the groups' intervals divided by `speed`; nothing else is touched."""

    def short(duration: str) -> str:
        return f"{max(1, round(seconds(duration) * 1000 / speed))}ms"

    rules: dict[str, Any] = yaml.safe_load(ALERTS.read_text())
    for group in rules["groups"]:
        if "interval" in group:
            group["interval"] = short(group["interval"])
    for rule in (r for group in rules["groups"] for r in group["rules"]):
        rule["expr"] = re.sub(r"(\[|offset )(\d+[smhd])", lambda found: found.group(1) + short(found.group(2)), rule["expr"])
        for key in ("for", "keep_firing_for"):
            if key in rule and rule[key] != "0s":
                rule[key] = short(rule[key])
    return rules
