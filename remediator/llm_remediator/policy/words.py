"""Answers and times in the words of the gates."""

from __future__ import annotations

from datetime import UTC, datetime

from llm_common.durations import format_duration
from llm_remediator.snapshot import Answer, Fact, Verb


def passed(text: str) -> Answer:
    """The gate lets it through."""
    return Answer(passed=True, text=text)


def refused(verb: Verb, reason: str, text: str) -> Answer:
    """The gate refuses; `reason` is the metric's label, `text` is for people."""
    return Answer(passed=False, text=text, reason=reason, verb=verb)


def needs(fact: Fact, text: str) -> Answer:
    """The gate cannot say yet."""
    return Answer(passed=None, text=text, reason=f"needs_{fact.value}", needs=fact)


def unasked(text: str) -> Answer:
    """The gate has nothing to look at, because one before it refused: it neither passes nor can be asked for more."""
    return Answer(passed=None, text=text, reason="not_asked", verb=Verb.DEFER)


def span(seconds: float) -> str:
    """A duration to the second: `1h3m`."""
    return format_duration(float(round(max(0.0, seconds))))


def clock(at: float) -> str:
    """A moment as UTC; with its date, because budgets look back over midnight."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
