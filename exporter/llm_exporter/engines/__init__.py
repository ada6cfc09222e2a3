"""All engine adapters. A module of this package with an ``ENGINE`` is an adapter; nothing else lists them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from ..exposition import Samples
from .base import ALIVE, CanaryPlan, Engine, Known, Look, Page, Reading

IDENTIFY = ("/api/version", "/v1/models")
"""What a server without a metrics page is asked, once per process, to tell what it is."""

__all__ = [
    "ALIVE",
    "IDENTIFY",
    "CanaryPlan",
    "Engine",
    "Known",
    "Look",
    "Page",
    "Reading",
    "by_kind",
    "detect",
    "detect_by_answers",
    "engines",
]


@cache
def engines() -> tuple[Engine, ...]:
    """Every adapter, in the order in which pages are offered to them: by tier, then by name."""
    found: list[Engine] = []
    for module in pkgutil.iter_modules(__path__):
        engine = getattr(importlib.import_module(f"{__name__}.{module.name}"), "ENGINE", None)
        if isinstance(engine, Engine):
            found.append(engine)
    return tuple(sorted(found, key=lambda engine: (engine.tier, engine.kind)))


def by_kind(kind: str) -> Engine | None:
    """The adapter of this name, or None."""
    return next((engine for engine in engines() if engine.kind == kind), None)


def detect(samples: Samples) -> Engine | None:
    """The adapter whose page this is, or None if no adapter knows it."""
    return next((engine for engine in engines() if engine.recognises(samples)), None)


def detect_by_answers(pages: Mapping[str, Page]) -> Engine | None:
    """The adapter of a server whose metrics page does not tell, or is not there, by what else it answers; or None."""
    return next((engine for engine in engines() if engine.answers_as is not None and engine.answers_as(pages)), None)
