"""Proxies and routers: asked for ``/v1/models`` and nothing else, and never given an engine's verdict.

LiteLLM's ``/health`` makes a paid call to every deployment; a router's metrics re-export its backends' gauges under
the engine's names with a ``server`` label and no step counter. Their backends are judged directly.
"""

from __future__ import annotations

from ..exposition import Samples
from ..judge import Facts
from .base import Engine, Known, Look, Reading

PREFIXES = ("litellm_", "smg_", "sgl_router_", "vllm_router_", "dynamo_frontend_")


def recognises(samples: Samples) -> bool:
    """A router's own series, or an engine's running gauge that names another server."""
    own = any(name.startswith(PREFIXES) for name in samples.names())
    foreign = any("server" in s.labels for s in samples.get("vllm:num_requests_running"))
    return (own or foreign) and not samples.has("vllm:iteration_tokens_total_count")


def read(samples: Samples, look: Look, known: Known) -> Reading:
    """Whether ``/v1/models`` answers."""
    page = look.metrics
    answer = page.json()
    models = answer.get("data") if isinstance(answer, dict) else None
    if page.status == 200 and isinstance(models, list):
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
    proxy=True,
    tier=0,
)
