"""Sampled moments as intervals."""

from __future__ import annotations


def spans(moments: list[float], gap: float) -> list[tuple[float, float]]:
    """The intervals in which there were samples; a gap of `gap` or more ends one."""
    found: list[tuple[float, float]] = []
    for at in moments:
        if found and at - found[-1][1] < gap:
            found[-1] = (found[-1][0], at)
        else:
            found.append((at, at))
    return found
