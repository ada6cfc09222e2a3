"""llama.cpp's llama-server.

Facts (read at 0c1e570, run at b11434): only ``n_decode_total`` moves while it works; ``tokens_predicted_total`` is added
when a slot is released. Numbers are printed with six significant digits. ``/metrics`` needs ``--metrics`` (else 501) and
the API key (else 401), may block for a whole decode (issue 24866); scraping it every second has stopped servers (29104).
While loading everything answers 503 ``Loading model``. The start time is a header, meaningless but stable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ..exposition import Samples
from ..judge import Facts
from .base import CanaryPlan, Engine, Known, Look, Page, Reading
from .lanes import LaneTable, Pick, read_lanes
from .shared import answer, first_model, loop_lag

STEP = "llamacpp:n_decode_total"
START_HEADER = "process-start-time-unix"
PRINTED_DIGITS = 6

TABLE = LaneTable(
    labels=(),
    progress=(Pick((STEP,)),),
    running=Pick(("llamacpp:requests_processing",)),
    waiting=(Pick(("llamacpp:requests_deferred",)),),
    kv=Pick(("llamacpp:kv_cache_usage_ratio",), how="max"),
    prompt_tokens=Pick(("llamacpp:prompt_tokens_total",)),
    generation_tokens=Pick(("llamacpp:tokens_predicted_total",)),
    finished=Pick(("llamacpp:tokens_predicted_total",)),
    steps=Pick((STEP,)),
)


def printed_step(value: float) -> float:
    """The smallest change that six significant digits can show at this size."""
    if value < 10**PRINTED_DIGITS:
        return 1.0
    return float(10 ** (math.floor(math.log10(value)) - PRINTED_DIGITS + 1))


def recognises(samples: Samples) -> bool:
    """Any of its own series."""
    return samples.has(STEP) or samples.has("llamacpp:requests_processing")


def read(samples: Samples, look: Look, known: Known) -> Reading:
    """One lane; slots share one decode loop."""
    asleep = _sleeping(look.extra.get("/props"))
    lanes = tuple(
        replace(lane, asleep=asleep, resolution=printed_step(lane.steps or 0.0), kv=None)
        for lane in read_lanes(samples, TABLE)
    )
    headers = {name.lower(): value for name, value in look.metrics.headers.items()}
    return Reading(lanes=lanes, incarnation=headers.get(START_HEADER), loop=loop_lag(samples))


def _sleeping(page: Page | None) -> str | None:
    return "asleep (the model is unloaded)" if answer(page).get("is_sleeping") is True else None


def facts(samples: Samples, known: Known) -> Facts:
    """Sighted: every prompt batch is a decode."""
    return Facts(
        kind="llamacpp",
        version=known.version,
        sighted=True,
        sight_why="every decode is counted",
        tokens_at_finish=True,
        steps_are_decodes=True,
    )


def loading(page: Page) -> str | None:
    """503 ``Loading model`` on every path."""
    return "loading the model" if page.status == 503 and "oading model" in page.body else None


def unloaded(page: Page) -> str | None:
    """A router's answer for a model that it could load; asking without ``autoload=false`` would load it (b11434)."""
    return "the model is not loaded" if page.status == 400 and "model is not loaded" in page.body else None


def about(pages: Mapping[str, Page]) -> Known:
    """Build and model. Its sleep timer is told nowhere (b11434's ``/props`` has only ``is_sleeping``)."""
    props = answer(pages.get("/props"))
    return Known(
        version=str(props["build_info"]) if "build_info" in props else None,
        model=first_model(pages.get("/v1/models")) or (str(props["model_path"]) if "model_path" in props else None),
    )


ENGINE = Engine(
    kind="llamacpp",
    series=TABLE.series(),
    recognises=recognises,
    read=read,
    facts=facts,
    loading=loading,
    unloaded=unloaded,
    each_look=("/props",),
    once=("/props", "/v1/models"),
    canary=CanaryPlan(
        path="/completion",
        body=lambda model: {"model": model, "prompt": [1], "n_predict": 1, "cache_prompt": False, "stream": False},
    ),
    mend={
        0: "no llamacpp: series: start llama-server with --metrics",
        400: "a llama.cpp router needs the model's name: give metrics_path: /metrics?model=NAME&autoload=false",
        401: "llama-server guards /metrics with its API key: give bearer_token_file",
        501: "start llama-server with --metrics",
    },
    sleeps_by_timer=True,
    interval=15.0,
    timeout=14.0,
    about=about,
)
