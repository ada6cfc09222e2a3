"""Durations as Prometheus writes them: ``30s``, ``5m``, ``1h30m``, ``250ms``, ``0``."""

from __future__ import annotations

import re

_UNITS = (
    ("y", 365 * 86400.0),
    ("w", 7 * 86400.0),
    ("d", 86400.0),
    ("h", 3600.0),
    ("m", 60.0),
    ("s", 1.0),
    ("ms", 0.001),
)
LONGEST = 2**63 / 1e9
# Units in falling order, each at most once: what Prometheus' own parser accepts.
_PATTERN = re.compile("".join(rf"(?:(?P<{unit}>[0-9]{{1,15}}){unit}(?![a-z]))?" for unit, _ in _UNITS))


def parse_duration(text: str) -> float:
    """Seconds of a duration in Prometheus' syntax; ``ValueError`` with the remedy otherwise."""
    text = text.strip()
    if text == "0":
        return 0.0
    match = _PATTERN.fullmatch(text)
    if not text or match is None:
        hint = f"; write {text}s" if re.fullmatch(r"[0-9]+", text) else ""
        raise ValueError(f"{text!r} is not a duration such as 30s, 5m or 1h30m{hint}")
    total = sum(int(match[unit]) * seconds for unit, seconds in _UNITS if match[unit] is not None)
    if total > LONGEST:
        raise ValueError(f"{text} is over 292 years, the longest that Prometheus reads")
    return total


def format_duration(seconds: float) -> str:
    """The shortest text that ``parse_duration`` reads back to these seconds (to the millisecond)."""
    rest = round(seconds * 1000)
    if rest <= 0:
        return "0s"
    parts = []
    for unit, size in _UNITS[2:]:
        count, rest = divmod(rest, round(size * 1000))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
