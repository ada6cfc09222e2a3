"""Servers of the OpenAI API without metrics: MLX-LM, TabbyAPI, and any other. What they answer proves little.

MLX-LM's ``/health`` is 200 while its generation thread lives; TabbyAPI's is 503 for ever once any error was recorded.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..exposition import Samples
from ..judge import Facts
from .base import CanaryPlan, Engine, Known, Look, Page, Reading, one_word
from .shared import first_model, listed_models


def read(samples: Samples, look: Look, known: Known) -> Reading:
    """It answers, and that is all that can be said."""
    health = look.health.status if look.health is not None else None
    said = f", its /health says {health}" if health is not None else ""
    return Reading(
        detail=f"it has no metrics: /v1/models answers {look.metrics.status}{said}, nothing shows whether it works; "
        "start it with metrics if it has some (SGLang: --enable-metrics), or canary.without_metrics asks",
        model=first_model(look.metrics),
    )


def facts(samples: Samples, known: Known) -> Facts:
    """A completion is the only question that proves anything."""
    return Facts(kind="openai", version=known.version)


def answers_as(pages: Mapping[str, Page]) -> bool:
    """A list of models of the OpenAI API."""
    return listed_models(pages.get("/v1/models")) is not None


ENGINE = Engine(
    kind="openai",
    series=(),
    recognises=lambda samples: False,
    read=read,
    facts=facts,
    health_is_work=True,
    metrics_path=None,
    each_look=("/v1/models",),
    once=(),
    canary=CanaryPlan(body=one_word),
    tier=3,
    answers_as=answers_as,
)
