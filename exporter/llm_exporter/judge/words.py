"""Words for people: durations, counts and rates as the verdicts' sentences say them."""

from __future__ import annotations

from collections.abc import Sequence

from .history import RatePoint


def duration(seconds: float) -> str:
    """``75`` as ``1m15s``, ``0.4`` as ``0.4s``: two units at the most."""
    if seconds < 10:
        return f"{seconds:.1f}".rstrip("0").rstrip(".") + "s"
    whole = round(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, whole = divmod(whole, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])


def count(value: float) -> str:
    """A count without a needless fraction."""
    return f"{value:.10g}"


def reading(value: float) -> str:
    """A series' value: a count to its last digit, a share to six."""
    return f"{value:.0f}" if value.is_integer() else f"{value:g}"


def rate(points: Sequence[RatePoint]) -> str:
    """What moved over the watched stretch, strongest evidence first: tokens, steps, KV usage."""
    if len(points) < 2:
        return ""
    first, last = points[0], points[-1]
    over = last.t - first.t
    if over <= 0:
        return ""
    for name, a, b in (
        ("tokens", first.generated, last.generated),
        ("prompt tokens", first.tokens, last.tokens),
        ("steps", first.steps, last.steps),
    ):
        if a is not None and b is not None and b > a:
            per_second = (b - a) / over
            shown = f"{per_second:.0f}" if per_second >= 10 else f"{per_second:.2g}"
            return f"{shown} {name}/s over {duration(over)}"
    if first.kv is not None and last.kv is not None and first.kv != last.kv:
        return f"prefill: KV cache {first.kv:.1%} to {last.kv:.1%} over {duration(over)}"
    return ""
