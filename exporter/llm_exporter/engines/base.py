"""What an engine's adapter is: a table of facts, and a few small functions where a table is not enough.

An adapter module holds one module-level ``ENGINE``; `llm_exporter.engines` finds it by itself, so that adding an engine
touches one file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..exposition import Samples
from ..judge import Facts, Failure, LaneEvidence, LoopEvidence

ALIVE = "/health/liveliness"
"""LiteLLM's own cheap liveness. An unknown server is asked for it before ``/health``, which LiteLLM passes on as a paid call
to every model that it routes to."""


@dataclass(frozen=True, slots=True)
class Page:
    """How one HTTP request ended: an answer (`status` set) or a failure (`kind` set).

    With the kind ``other``, an `error` that begins with ``oversize:``, ``encoding:`` or ``protocol:`` says that something
    answered which could not be read.
    """

    status: int | None = None
    body: str = ""
    seconds: float = 0.0
    kind: Failure | None = None
    error: str | None = None
    ctype: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    def json(self) -> Any:
        """The body as JSON, or None if it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a target: what each of its endpoints said.

    Attributes:
        t: Monotonic seconds at which the look began (in a replay: seconds since the recording's start).
        unix: Wall clock at that moment.
        metrics: The metrics page.
        health: The engine's own health endpoint, if it was asked.
        extra: Other answers by path, as far as they were asked (`Engine.each_look`, `Engine.once`).
    """

    t: float
    unix: float
    metrics: Page
    health: Page | None = None
    extra: Mapping[str, Page] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a server besides its page: asked once per process, recorded as ``about``, or configured."""

    version: str | None = None
    model: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reading:
    """What an adapter read from a look that was answered.

    Attributes:
        lanes: Evidence per lane; empty if nothing could be judged, then `detail` says what is missing and the mend.
        started: Unix time of the process's start, if the page has a true one.
        first_token: The engine's own time-to-first-token histogram: cumulative counts by upper bound in seconds.
        missing: Series that this version should have and the page has not.
    """

    lanes: tuple[LaneEvidence, ...] = ()
    detail: str = ""
    incarnation: str | None = None
    started: float | None = None
    model: str | None = None
    answers_ok: float | None = None
    answers_failed: float | None = None
    in_flight: float | None = None
    loop: LoopEvidence | None = None
    loading: str | None = None
    death: str | None = None
    died_loading: bool = False
    first_token: Mapping[float, float] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CanaryPlan:
    """One tiny request: one token, no streaming.

    Attributes:
        path: Where it goes.
        method: GET for engines that bring their own probe.
        body: Its JSON body from the model's name; None for GET.
        lane_header: Header that pins it to a lane (the lane's name is the value), if the engine has one.
        names_model: Its body needs the model's name; without one nothing can be sent.
        silent_codes: HTTP codes that mean "the engine gave nothing back" (queue full, or the probe's own time limit).
        answered: Whether an answer with this status and JSON body proves that the model ran.
    """

    path: str = "/v1/completions"
    method: str = "POST"
    body: Callable[[str], Mapping[str, Any]] | None = None
    lane_header: str | None = None
    names_model: bool = True
    silent_codes: frozenset[int] = frozenset({429})
    answered: Callable[[int, Any], bool] = lambda status, body: (
        status == 200 and bool(isinstance(body, dict) and (body.get("choices") or body.get("content") is not None))
    )


def one_token(model: str) -> Mapping[str, Any]:
    """The body of an OpenAI completion of one token; token ids, so that no tokenizer or chat template is involved."""
    return {"model": model, "prompt": [1], "max_tokens": 1, "temperature": 0, "stream": False}


def one_word(model: str) -> Mapping[str, Any]:
    """The same with a text, for servers that take no token ids (MLX-LM, TabbyAPI, LMDeploy) or may take none."""
    return {**one_token(model), "prompt": "a"}


def nothing(_: Page) -> str | None:
    """For engines whose loading answers need no words of their own."""
    return None


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine's adapter.

    Attributes:
        kind: Its name in configuration and ``llm_target_info``.
        series: Every series that `read` needs (exposition names); pages are scanned for these alone.
        recognises: Whether a whole page is this engine's.
        read: From the page's samples to evidence. Gets the whole look for headers and other endpoints.
        facts: What is known of this engine and version.
        loading: What an answer of this page while loading says, or None if it does not say so.
        unloaded: Likewise for an answer that says that the model is unloaded on purpose.
        health_path, metrics_path: Where to look. ``metrics_path=None``: there are no metrics.
        each_look: Cheap read-only endpoints asked with every look, dropped for a process that answers 404 or 401.
        once: Endpoints asked once per process (version, model names).
        canary: How to send one tiny request, or None.
        mend: What to do where the metrics page is not there, by HTTP status (0: any other reason).
        answers_as: For servers whose metrics page does not tell: whether these answers to what an unknown server is asked
            (``/metrics``, `llm_exporter.engines.ALIVE`, `llm_exporter.engines.IDENTIFY`) are this server's.
        interval, timeout: Seconds; this engine's own defaults.
        less_abandoned: Takes requests whose client left off a reading, for engines whose counts keep those open for ever.
        health_until_served: Its health endpoint runs the model, so it is asked only until the process has served, and not
            where nothing can tell that it has (SGLang without metrics).
        health_is_work: Its health waits behind, or fails with, healthy work: a 5xx of it proves nothing.
        sleeps_by_timer: Seen asleep once, it sleeps whenever it is idle; a canary would keep it awake for ever.
        about: What the answers of `once` say of version and model.
        tier: When it is offered a page, smallest first: 0: its pages also show series of another engine; 1: run or read by
            us in depth; 2: facts read in its source, not run by us; 3: fits many servers.
    """

    kind: str
    series: tuple[str, ...]
    recognises: Callable[[Samples], bool]
    read: Callable[[Samples, Look, Known], Reading]
    facts: Callable[[Samples, Known], Facts]
    loading: Callable[[Page], str | None] = nothing
    unloaded: Callable[[Page], str | None] = nothing
    metrics_path: str | None = "/metrics"
    health_path: str | None = "/health"
    each_look: tuple[str, ...] = ()
    once: tuple[str, ...] = ("/v1/models",)
    canary: CanaryPlan | None = None
    mend: Mapping[int, str] = field(default_factory=dict)
    interval: float | None = None
    timeout: float | None = None
    less_abandoned: Callable[[Reading, float], Reading] | None = None
    health_until_served: bool = False
    health_is_work: bool = False
    sleeps_by_timer: bool = False
    tier: int = 1
    about: Callable[[Mapping[str, Page]], Known] | None = None
    answers_as: Callable[[Mapping[str, Page]], bool] | None = None

    @property
    def look_path(self) -> str:
        """The endpoint that every look asks first; its answer is `Look.metrics` also where there are no metrics."""
        return self.metrics_path or (self.each_look or ("/v1/models",))[0]
