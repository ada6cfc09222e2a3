"""A tolerant reader of the Prometheus text format (and of OpenMetrics, where engines mix them).

Tolerant, because a page is read for evidence: one bad line must not hide the others, so what cannot be read is skipped.
Names are normalised, ``vllm:x`` and ``vllm_x`` are the same series: routers, OpenTelemetry collectors and
prometheus_client's OpenMetrics escaping rewrite the colon.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*')
_VALUE = re.compile(
    r"\s*([+-]?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[iI]nf(?:inity)?|[nN]a[nN]))"
    r"(?:\s+[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)?(?:\s+#\s.*)?\s*$"
)
_ESCAPE = re.compile(r"\\(.)")
CACHED_LABELS = 400
LONGEST_LINE = 1 << 16
FEW = 8
PIECE = 1 << 17
_NO_LABELS: Mapping[str, str] = MappingProxyType({})
_ESCAPED = {"n": "\n", '"': '"', "\\": "\\"}


class Sample(NamedTuple):
    """One line of a page; NaN and infinities never become samples."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Samples:
    """What a page says: samples per normalised series name (colons are underscores)."""

    by_name: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)

    def get(self, name: str) -> tuple[Sample, ...]:
        """All samples of a series, or none; `name` may use colons or underscores."""
        return self.by_name.get(name.replace(":", "_"), ())

    def has(self, name: str) -> bool:
        """Whether the page has at least one finite sample of the series."""
        return bool(self.get(name))

    def total(self, name: str) -> float | None:
        """The sum over all label sets, or None if the series is absent."""
        found = self.get(name)
        return sum(s.value for s in found) if found else None

    def names(self) -> Iterable[str]:
        """All normalised names."""
        return self.by_name.keys()


def read(body: str, names: Iterable[str] | None = None) -> Samples:
    """Read a page.

    Args:
        body: The page's text; a JSON string that holds a page is unwrapped (some frameworks answer so).
        names: Only these series are read (much faster); None reads all.
    """
    found: dict[str, list[Sample]] = {}
    for line in _lines(_unwrapped(body), names):
        sample = read_line(line)
        if sample is not None and math.isfinite(sample.value):
            found.setdefault(sample.name.replace(":", "_"), []).append(sample)
    return Samples({name: tuple(samples) for name, samples in found.items()})


def sketch(body: str) -> Samples:
    """A few samples of every series: enough to tell whose page it is, however many lines it has."""
    found: dict[str, list[Sample]] = {}
    for line in _lines(_unwrapped(body), None):
        brace = line.find("{")
        known = found.setdefault(_first_word(line[:brace] if brace > 0 else line), [])
        if len(known) < FEW and (sample := read_line(line)) is not None and math.isfinite(sample.value):
            known.append(sample)
    return Samples({name.replace(":", "_"): tuple(samples) for name, samples in found.items() if samples})


def read_line(line: str) -> Sample | None:
    """Read one sample line, or None if it is not one. Labels keep no order; later duplicates of a label win."""
    name = _NAME.match(line) if len(line) <= LONGEST_LINE else None
    if name is None:
        return None
    labels: Mapping[str, str] = _NO_LABELS
    at = name.end()
    if (brace := _opening(line, at)) is not None:
        close = line.rfind("}") + 1
        known = _labels_of(line[brace:close]) if close - brace <= CACHED_LABELS else None
        if known is None:
            # An exemplar behind the value, or a brace inside a quoted label: from the start, then.
            fresh: dict[str, str] = {}
            end = _labels(line, brace, fresh)
            if end is None:
                return None
            labels, at = fresh, end
        else:
            labels, at = known, close
    elif at < len(line) and not line[at].isspace():
        return None
    value = _number(line[at:])
    return None if value is None else Sample(name.group(), labels, value)


@lru_cache(maxsize=8192)
def _labels_of(text: str) -> Mapping[str, str] | None:
    """The labels of a whole ``…}``, or None if it is not exactly that. Pages repeat their labels at every look."""
    labels: dict[str, str] = {}
    return MappingProxyType(labels) if _labels(text, 0, labels) == len(text) else None


def _number(text: str) -> float | None:
    """The value behind name and labels; a timestamp or an exemplar may follow it."""
    if "_" not in text and text.isascii():
        try:
            return float(text)
        except ValueError:
            pass  # a timestamp, an exemplar, or no number: the pattern tells
    value = _VALUE.match(text)
    return None if value is None else float(value.group(1))


def _opening(line: str, at: int) -> int | None:
    while at < len(line) and line[at] in " \t":
        at += 1
    return at + 1 if at < len(line) and line[at] == "{" else None


def _labels(line: str, at: int, into: dict[str, str]) -> int | None:
    """Read labels from just behind ``{``; return the position behind ``}``, or None if they are malformed."""
    while True:
        if at < len(line) and line[at] == "}":
            return at + 1
        label = _LABEL.match(line, at)
        if label is None:
            rest = line[at:].lstrip()
            return len(line) - len(rest) + 1 if rest.startswith("}") else None
        raw = label.group(2)
        into[label.group(1)] = _ESCAPE.sub(lambda m: _ESCAPED.get(m.group(1), m.group(0)), raw) if "\\" in raw else raw
        at = label.end()
        if at < len(line) and line[at] == ",":
            at += 1
        elif at >= len(line) or line[at] != "}":
            return None


def _lines(text: str, names: Iterable[str] | None) -> Iterator[str]:
    if names is None:
        for line in _split(text):
            stripped = line.strip()
            if stripped and not stripped.startswith("#"):
                yield stripped
        return
    wanted = _spellings(tuple(names))
    for line in _split(text):
        if not line or line[0] == "#":
            continue
        brace = line.find("{")
        name = line[:brace] if brace > 0 else line
        # The common line is `name{`; without labels, or with an exemplar's brace behind it, the first word is the name.
        if name in wanted or ((brace < 0 or " " in name or "\t" in name) and _first_word(name) in wanted):
            yield line.strip()


def _split(text: str) -> Iterator[str]:
    """The lines, split piece by piece: one call that made a million lines would hold up every other thread meanwhile."""
    start = 0
    while (end := text.find("\n", start + PIECE)) >= 0:
        yield from text[start:end].split("\n")
        start = end + 1
    yield from text[start:].split("\n")


@lru_cache(maxsize=64)
def _spellings(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(spelling for name in names for spelling in (name, name.replace(":", "_")))


def _first_word(text: str) -> str:
    words = text.split(None, 1)
    return words[0] if words else ""


def _unwrapped(body: str) -> str:
    if body.startswith("﻿"):
        body = body[1:]
    if body.startswith('"') and body.rstrip().endswith('"'):
        try:
            inner = json.loads(body)
        except (ValueError, RecursionError):
            return body
        if isinstance(inner, str):
            return inner
    return body
