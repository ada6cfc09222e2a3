"""Ollama: no metrics at all. ``/api/ps`` tells which models are loaded, nothing tells whether they work."""

from __future__ import annotations

from collections.abc import Mapping

from ..exposition import Samples
from ..judge import Facts, LaneEvidence
from .base import CanaryPlan, Engine, Known, Look, Page, Reading
from .shared import answer


def read(samples: Samples, look: Look, known: Known) -> Reading:
    """Unloaded is asleep; loaded is unknown, because no endpoint shows progress."""
    models = answer(look.metrics).get("models")
    if not isinstance(models, list):
        return Reading(detail=f"{look.metrics.status} on /api/ps: no Ollama?")
    if not models:
        return Reading(lanes=(LaneEvidence("0", {}, 0.0, 0.0, asleep="no model is loaded"),))
    names = [str(model.get("name", "?")) for model in models if isinstance(model, dict)]
    return Reading(
        detail=f"Ollama has no metrics: {', '.join(names)} loaded, but nothing shows whether it works; "
        "canary.without_metrics asks",
        model=names[0] if names else None,
    )


def facts(samples: Samples, known: Known) -> Facts:
    """A canary keeps the model loaded (``keep_alive``), so it is sent only if the operator asks for it."""
    return Facts(kind="ollama", version=known.version, idle_canary="a request would load a model and keep it loaded")


def answers_as(pages: Mapping[str, Page]) -> bool:
    """``/api/version`` is Ollama's own."""
    return "version" in answer(pages.get("/api/version"))


ENGINE = Engine(
    kind="ollama",
    series=(),
    recognises=lambda samples: False,
    read=read,
    facts=facts,
    metrics_path=None,
    health_path=None,
    each_look=("/api/ps",),
    once=("/api/version",),
    canary=CanaryPlan(
        path="/api/generate",
        body=lambda model: {"model": model, "prompt": "a", "stream": False, "options": {"num_predict": 1}},
        answered=lambda status, body: status == 200 and isinstance(body, dict) and "response" in body,
    ),
    tier=2,
    answers_as=answers_as,
)
