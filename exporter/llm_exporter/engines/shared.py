"""What servers of several engines say alike: a process's start, its model, the heartbeat's lag, the list of models."""

from __future__ import annotations

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
