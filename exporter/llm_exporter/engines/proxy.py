"""Proxies and routers: asked for ``/v1/models`` and nothing else, and never given an engine's verdict.

LiteLLM's ``/health`` makes a paid call to every deployment; a router's metrics re-export its backends' gauges under
the engine's names with a ``server`` label and no step counter. Their backends are judged directly.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..exposition import Samples
from ..judge import Facts
from .base import ALIVE, Engine, Known, Look, Page, Reading
from .shared import listed_models

PREFIXES = ("litellm_", "smg_", "sgl_router_", "vllm_router_", "dynamo_frontend_")


def recognises(samples: Samples) -> bool:
    """A router's own series, or an engine's that name another server."""
    own = any(name.startswith(PREFIXES) for name in samples.names())
    foreign = any("server" in s.labels for name in samples.names() if name.startswith("vllm_") for s in samples.get(name))
    return (own or foreign) and not samples.has("vllm:iteration_tokens_total_count")


def answers_as(pages: Mapping[str, Page]) -> bool:
    """LiteLLM says that it is alive; a page for people that answers every path does not count."""
    page = pages.get(ALIVE)
    return page is not None and page.status == 200 and len(page.body) < 200 and "i'm alive" in page.body.lower()


def read(samples: Samples, look: Look, known: Known) -> Reading:
    """Whether ``/v1/models`` answers."""
    page = look.metrics
    models = listed_models(page)
    if models is not None:
        said = f"it answers /v1/models with {len(models)} models"
    elif page.status == 200:
        said = "it answers"
    elif page.status in (401, 403):
        said = f"it answers /v1/models with {page.status}; give bearer_token_file"
    else:
        said = f"it answers /v1/models with {page.status}"
    return Reading(detail=f"a proxy, no engine: {said}; give its backends as targets of their own")


def facts(samples: Samples, known: Known) -> Facts:
    """Nothing is sent to it."""
    return Facts(kind="proxy", canary="a proxy is only asked for /v1/models")


ENGINE = Engine(
    kind="proxy",
    series=(),
    recognises=recognises,
    read=read,
    facts=facts,
    metrics_path=None,
    health_path=None,
    each_look=("/v1/models",),
    once=(),
    answers_as=answers_as,
    tier=0,
)
