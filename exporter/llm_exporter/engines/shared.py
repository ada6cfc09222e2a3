"""What servers of several engines say alike: versions, models, a process's start, histograms, the heartbeat's lag."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from ..exposition import Samples
from ..judge import LoopEvidence
from .base import Known, Page

PROCESS_START = "process_start_time_seconds"
LOOP_LAG, LOOP_BLOCKED = "llm_event_loop_lag_seconds", "llm_event_loop_blocked_seconds"


def answer(page: Page | None) -> Mapping[str, Any]:
    """The JSON object of an answer with status 200; empty for every other ending."""
    said = page.json() if page is not None and page.status == 200 else None
    return said if isinstance(said, dict) else {}


def finite(value: object) -> float | None:
    """A number of a JSON answer; None for what is none, and for what Python's reader takes but no measurement can be."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def process_start(samples: Samples) -> tuple[str | None, float | None]:
    """Incarnation and Unix time of the start, as prometheus_client tells them; multi-process pages have neither."""
    start = samples.total(PROCESS_START)
    return (None, None) if start is None else (f"{start:.3f}", start)


def model_name(samples: Samples, series: str) -> str | None:
    """The served model by the ``model_name`` label of a series."""
    return next((sample.labels["model_name"] for sample in samples.get(series) if "model_name" in sample.labels), None)


def first_token_counts(samples: Samples, name: str) -> dict[float, float]:
    """A histogram's cumulative counts by upper bound, summed over lanes and models."""
    counts: dict[float, float] = {}
    for sample in samples.get(f"{name}_bucket"):
        try:
            bound = float(sample.labels.get("le", ""))
        except ValueError:
            continue
        counts[bound] = counts.get(bound, 0.0) + sample.value
    return counts


def loop_lag(samples: Samples) -> LoopEvidence | None:
    """The heartbeat's lag on the engine's own page, if the heartbeat is there.

    The lag outlives its block by 30 s, so the age of the block in progress decides where a heartbeat tells it.
    """
    lags = [s.value for s in samples.get(LOOP_LAG) if "target" not in s.labels]
    blocked = [s.value for s in samples.get(LOOP_BLOCKED) if "target" not in s.labels]
    return LoopEvidence(max(lags), blocked=max(blocked or lags)) if lags else None


def listed_models(page: Page | None) -> list[Mapping[str, Any]] | None:
    """The entries of ``/v1/models``; None if the answer is no list of models."""
    data = answer(page).get("data")
    return [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else None


def first_model(page: Page | None) -> str | None:
    """The first base model of ``/v1/models``; adapters come later in vLLM's list and have a ``parent``."""
    names = (entry.get("id") for entry in listed_models(page) or () if not entry.get("parent"))
    return next((name for name in names if isinstance(name, str)), None)


def about_by_version(pages: Mapping[str, Page]) -> Known:
    """Version and served model as vLLM and trtllm-serve tell them in ``/version`` and ``/v1/models``."""
    version = answer(pages.get("/version")).get("version")
    return Known(None if version is None else str(version), first_model(pages.get("/v1/models")))


def about_by_info(pages: Mapping[str, Page]) -> Known:
    """Version and model as Hugging Face's servers tell them in ``/info``, which needs no key."""
    said = answer(pages.get("/info"))
    version, model = said.get("version"), said.get("model_id")
    return Known(str(version) if version else None, str(model) if model else None)


def version_tuple(version: str | None) -> tuple[int, ...] | None:
    """``0.10.1.1`` and ``v0.10.2rc1+cpu`` as comparable numbers, or None if it is no version."""
    found = re.match(r"v?([0-9]+(?:\.[0-9]+)*)", version or "")
    return tuple(int(number) for number in found[1].split(".")) if found else None
