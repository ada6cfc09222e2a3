"""What the judge is given: what is known of the engine, one look, and how patient to be. Frozen data.

Times are seconds on the observer's monotonic clock (``t``) unless a name says ``unix``. ``None`` always means "not known",
never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Failure = Literal["refused", "timeout", "reset", "dns", "tls", "noroute", "other"]
Reach = Literal["answered", "loading"] | Failure
CanaryKind = Literal["confirm", "idle"]
CanaryResult = Literal["answered", "silent", "http", "refused", "reset", "none"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of an engine and version that changes the judge's patience.

    Attributes:
        kind: Engine name as exported in ``llm_target_info``.
        version: Version string when the engine tells it.
        sighted: Whether the source shows progress during a long prefill.
        sight_why: One clause that says why it is sighted or blind.
        stuck_after: The engine's own default bound in seconds (its internal watchdog acts before or after it).
        stalled_floor, stuck_floor: Staleness windows of the engine's gauges: never judged faster than these.
        floor_why: Source of the floors.
        pins_lanes: The engine can be told which lane answers a request.
        canary: Why no canary can be sent to this engine, or None if one can.
        idle_canary: Why no canary may be sent while it claims idle, or None.
        tokens_at_finish: Token counters move only when a request ends, so their rest says nothing of the decode.
        steps_are_decodes: One step is one decode call, which nothing interrupts; the slowest one seen stretches the bound.
        health_is_idle_canary: 503 of ``/health`` at nothing held is itself a silent idle canary (SGLang).
    """

    kind: str
    version: str | None = None
    sighted: bool = True
    sight_why: str = ""
    stuck_after: float = 300.0
    stalled_floor: float = 0.0
    stuck_floor: float = 0.0
    floor_why: str = ""
    pins_lanes: bool = False
    canary: str | None = None
    idle_canary: str | None = None
    health_is_idle_canary: bool = False
    tokens_at_finish: bool = False
    steps_are_decodes: bool = False


@dataclass(frozen=True, slots=True)
class LaneEvidence:
    """One lane's page, reduced to what can prove something.

    Attributes:
        lane: The lane's name (``"0"`` where an engine has one).
        progress: Counters of which any change is progress, by series name.
        running, waiting: Requests held; ``waiting`` sums every queue of the engine.
        deferred: The part of ``waiting`` that waits for somebody else (remote KV, another server).
        kv: KV cache usage 0..1.
        kv_shown: Sum of all KV gauges of the lane, to see whether one moves below the largest (a stale one per process).
        preemptions, prompt_tokens, generation_tokens, finished, steps: Life-time counts.
        alive: A counter that moves while the engine's loop turns idly; proof of an idle engine, never progress.
        asleep: Why it does not work on purpose ("weights offloaded", "paused"), or None.
        resolution: Smallest visible change of the step counter as printed (llama.cpp prints six digits).
        missing: Needed series that the page does not have, as exposition names.
    """

    lane: str
    progress: Mapping[str, float] = field(default_factory=dict)
    running: float | None = None
    waiting: float | None = None
    deferred: float | None = None
    kv: float | None = None
    kv_shown: float | None = None
    preemptions: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    finished: float | None = None
    steps: float | None = None
    alive: float | None = None
    asleep: str | None = None
    resolution: float = 1.0
    missing: tuple[str, ...] = ()

    @property
    def tokens(self) -> float | None:
        """Prompt and generated tokens together, or None if neither is known."""
        if self.prompt_tokens is None and self.generation_tokens is None:
            return None
        return (self.prompt_tokens or 0.0) + (self.generation_tokens or 0.0)

    @property
    def worked(self) -> bool:
        """Whether any token or step was ever counted."""
        return bool(self.tokens) or any(self.progress.values())


@dataclass(frozen=True, slots=True)
class CanaryRequest:
    """The judge asks for one tiny request, to `lane` if it can be pinned."""

    kind: CanaryKind
    lane: str | None


@dataclass(frozen=True, slots=True)
class CanaryOutcome:
    """How one tiny request of ours ended.

    ``silent``: accepted, and nothing came within the timeout. ``http``: an answer that no model run produced; see `status`.
    ``none``: none could be sent; `words` says why.

    Attributes:
        kind: The question that it answers; None while it lies in a recording and the judge has not asked for it.
        began, seconds: When it was sent, and how long it took.
        status: HTTP status, if there was an answer.
        lane: The lane that it was pinned to, if it was.
    """

    kind: CanaryKind | None
    result: CanaryResult
    began: float
    seconds: float
    status: int | None = None
    lane: str | None = None
    words: str = ""

    @property
    def ended(self) -> float:
        """When it ended, monotonic."""
        return self.began + self.seconds

    @property
    def silence(self) -> bool:
        """Whether the engine took the request, or had no room for it, and gave nothing back."""
        return self.result == "silent" or (self.result == "http" and self.status == 429)


@dataclass(frozen=True, slots=True)
class Witness:
    """Optional second looks. They make the judge more careful or its sentence better; none restarts anything by itself.

    Attributes:
        in_flight: Requests open at HTTP level (vLLM ``/load``, SGLang ``http_requests_active``, TGI/TEI count minus done).
        power_high: The GPU draws as much as it does when it computes (a spinning collective does not).
        cpu_high: The container burns CPU.
        container: Container status from the runtime (``running``, ``exited`` …); proves that a process exists.
        container_started: Unix time of the container's start.
        hardware: A fatal GPU error in words; a restart would not help.
    """

    in_flight: float | None = None
    power_high: bool | None = None
    power_words: str = ""
    cpu_high: bool | None = None
    container: str | None = None
    container_started: float | None = None
    oom_killed: bool | None = None
    hardware: str | None = None


@dataclass(frozen=True, slots=True)
class LoopEvidence:
    """What a heartbeat inside the serving process says of its event loop.

    Attributes:
        lag: Largest delay of its last 30 s, which outlives the block that made it.
        culprit: The function that was seen on the blocked loop.
        blocked: Age of the block in progress in seconds; 0 if the loop turns.
    """

    lag: float
    culprit: str | None = None
    blocked: float = 0.0


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at a target, after its engine's adapter has read it.

    Attributes:
        unix: Wall clock of the look; only used to see that the observer itself was suspended.
        reach: How the fetch ended. Everything below `detail` is empty unless it is ``answered``.
        detail: For a failed look: what failed. For an answer that cannot be judged: what is missing, and the mend.
        incarnation: Names this process; compared for equality only. None if the engine does not tell.
        age: Seconds since the process started, if known.
        health: HTTP code of the engine's own ``/health``; None if it did not answer.
        loading: Set when an answering server says that it is not ready yet.
        death: Set when the engine's own signal says that it is dead (only meaningful after it served).
        died_loading: `death` is proof even of a server that never served (a failed load).
        answers_ok, answers_failed: Life-time counts of inference answers 2xx and 5xx, if counted.
        canary: A canary that ended since the previous look; this look's page was fetched after it ended.
        own_canary: Our own canary, if one is in flight during this look.
    """

    unix: float
    reach: Reach
    detail: str = ""
    facts: Facts = field(default_factory=lambda: Facts("unknown"))
    lanes: tuple[LaneEvidence, ...] = ()
    incarnation: str | None = None
    age: float | None = None
    health: int | None = None
    loading: str | None = None
    death: str | None = None
    died_loading: bool = False
    answers_ok: float | None = None
    answers_failed: float | None = None
    canary: CanaryOutcome | None = None
    own_canary: CanaryRequest | None = None
    witness: Witness = field(default_factory=Witness)
    loop: LoopEvidence | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """How patient the judge is with one target; all durations in seconds. Defaults are the product's.

    Attributes:
        interval: Between two looks.
        stalled_after: How long held work may be flat before it is said.
        stuck_after: The bound on a source that shows a long prefill; None: the engine's own default.
        stuck_after_blind: The bound on one that does not.
        starved_after: How long the engine may move while users get nothing.
        start_grace: How long a new process, or its first work, cannot be called stuck.
        blocked_after: How long its event loop may be blocked.
        confirm: Ask with a canary before ``stuck``; else the bound alone is trusted.
        idle_canary, canary_every: Ask an engine that claims to be idle, and how often.
        canary_timeout: How long a canary waits before its lack of an answer is silence.
        prefill_blind: What the operator says of the source's sight; None: as `Facts` say.
        without_metrics: A server without metrics is judged by canaries alone.
    """

    interval: float = 5.0
    stalled_after: float = 30.0
    stuck_after: float | None = None
    stuck_after_blind: float = 900.0
    starved_after: float = 600.0
    start_grace: float = 600.0
    blocked_after: float = 300.0
    confirm: bool = True
    idle_canary: bool = True
    canary_every: float = 900.0
    canary_timeout: float = 30.0
    prefill_blind: bool | None = None
    without_metrics: bool = False

    @property
    def longest_gap(self) -> float:
        """How long an unseen stretch may be and still count as watched."""
        return max(3 * self.interval, 30.0)
