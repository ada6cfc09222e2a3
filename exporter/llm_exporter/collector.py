"""``/metrics``: the lines of all targets, joined family by family in slices that let the event loop turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass

from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR, CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from llm_exporter.lines import Lines, number, quoted
from llm_exporter.names import OWN_FAMILIES, TARGET_FAMILIES, Family

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
SLICE = 256


@dataclass(frozen=True, slots=True)
class Own:
    """A sample of the exporter about itself."""

    name: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


def content_type(accept: str) -> str:
    """The format for an Accept header: OpenMetrics where the scraper prefers it, the classic text format otherwise."""
    weights = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for part in accept.split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        if media in weights:
            weights[media] = max(weights[media], weight)
    openmetrics = weights["application/openmetrics-text"]
    return OPENMETRICS if openmetrics > 0 and openmetrics >= weights["text/plain"] else TEXT


async def render(parts: Sequence[Lines], own: Iterable[Own], kind: str) -> AsyncIterator[str]:
    """The page in pieces; between two pieces the event loop may do something else.

    Args:
        parts: The rendered lines of each target, taken at one moment.
        own: The exporter's samples about itself.
        kind: ``TEXT`` or ``OPENMETRICS``.
    """
    openmetrics = kind == OPENMETRICS
    for index, family in enumerate(TARGET_FAMILIES):
        headed = False
        for start in range(0, len(parts), SLICE):
            piece = "".join([lines[index] for lines in parts[start : start + SLICE]])
            if piece:
                yield piece if headed else _head(family, openmetrics) + piece
                headed = True
            await asyncio.sleep(0)
    yield _own(own, openmetrics)
    if openmetrics:
        yield "# EOF\n"


def _head(family: Family, openmetrics: bool) -> str:
    name = family.family_name if openmetrics else family.name
    kind = family.kind if openmetrics else family.text_type
    meaning = family.meaning.replace("\\", r"\\").replace("\n", " ")
    return f"# HELP {name} {meaning}\n# TYPE {name} {kind}\n"


def _own(own: Iterable[Own], openmetrics: bool) -> str:
    samples = list(own)
    page = []
    for family in OWN_FAMILIES:
        mine = [sample for sample in samples if sample.name == family.name]
        if mine:
            page.append(_head(family, openmetrics))
        for sample in mine:
            labels = ",".join(f"{key}={quoted(value)}" for key, value in sample.labels)
            page.append(
                f"{sample.name}{{{labels}}} {number(sample.value)}\n"
                if labels
                else f"{sample.name} {number(sample.value)}\n"
            )
    return "".join(page) + _process(openmetrics)


_registry = CollectorRegistry(auto_describe=False)
for _collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
    _registry.register(_collector)


def _process(openmetrics: bool) -> str:
    """The exporter's own ``process_*`` and ``python_*`` series."""
    write: Callable[[CollectorRegistry], bytes] = generate_openmetrics if openmetrics else generate_latest
    return write(_registry).decode().removesuffix("# EOF\n")
