"""What servers of several engines say alike: a process's start, its model, the heartbeat's lag, the list of models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..exposition import Samples
from ..judge import LoopEvidence
from .base import Page

PROCESS_START = "process_start_time_seconds"
LOOP_LAG, LOOP_BLOCKED = "llm_event_loop_lag_seconds", "llm_event_loop_blocked_seconds"


def answer(page: Page | None) -> Mapping[str, Any]:
    """The JSON object of an answer with status 200; empty for every other ending."""
    said = page.json() if page is not None and page.status == 200 else None
    return said if isinstance(said, dict) else {}


def process_start(samples: Samples) -> tuple[str | None, float | None]:
    """Incarnation and Unix time of the start, as prometheus_client tells them; multi-process pages have neither."""
    start = samples.total(PROCESS_START)
    return (None, None) if start is None else (f"{start:.3f}", start)


def model_name(samples: Samples, series: str) -> str | None:
    """The served model by the ``model_name`` label of a series."""
    return next((sample.labels["model_name"] for sample in samples.get(series) if "model_name" in sample.labels), None)


def loop_lag(samples: Samples) -> LoopEvidence | None:
    """The heartbeat's lag on the engine's own page, if the heartbeat is there.

    The lag outlives its block by 30 s, so the age of the block in progress decides where a heartbeat tells it.
    """
    lags = [s.value for s in samples.get(LOOP_LAG) if "target" not in s.labels]
    blocked = [s.value for s in samples.get(LOOP_BLOCKED) if "target" not in s.labels]
    return LoopEvidence(max(lags), blocked=max(blocked or lags)) if lags else None


def first_model(page: Page | None) -> str | None:
    """The first base model of ``/v1/models``; adapters come later in vLLM's list and have a ``parent``."""
    data = answer(page).get("data")
    for entry in data if isinstance(data, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("id"), str) and not entry.get("parent"):
            return str(entry["id"])
    return None
