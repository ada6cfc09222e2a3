"""The one step that live judging and replay share: a look goes in, a verdict comes out.

Pure but for the adapters' parsing: no network, no clock. What differs between live and replay is only who makes the looks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .engines import Engine, Known, Look, Reading, by_kind, detect, detect_by_answers, engines
from .engines.custom import Described, adapter
from .exposition import Samples, read, sketch
from .judge import (
    CanaryOutcome,
    CanaryRequest,
    Facts,
    History,
    LaneEvidence,
    LoopEvidence,
    Observation,
    Settings,
    Verdict,
    Witness,
    judge,
)
from .reach import load_failed, reach_of

NO_SERIES = (
    "no series of an engine on this page (looked for {steps}); vLLM shows none with --disable-log-stats, "
    "llama-server needs --metrics, SGLang --enable-metrics"
)

MOST_LANES = 1024
"""Lanes that are judged and exported of one target; a page with more must not cost the other targets their looks."""

LONGEST_LANE = 200

CLOCKS_DIFFER = 60.0
"""Seconds by which a server's clock may be ahead of ours."""


@dataclass(frozen=True, slots=True)
class Mind:
    """Everything that is remembered of one target.

    Attributes:
        engine: The adapter in use; None until a page was recognised (or the configuration names one).
        fixed: The configuration names the engine, so it is never detected anew.
        known: Version, model and the like, asked once per process.
        slept: This process was seen asleep by an engine that sleeps by a timer.
        abandoned: Requests that the page keeps open although their clients left: a canary was answered behind them.
        history: The judge's memory.
    """

    engine: Engine | None = None
    fixed: bool = False
    known: Known = field(default_factory=Known)
    slept: bool = False
    abandoned: float = 0.0
    history: History = field(default_factory=History)

    @classmethod
    def of(cls, kind: str, described: Described | None = None) -> Mind:
        """A target of a configured engine kind, of one that the operator described, or of any (``auto``)."""
        engine = adapter(described) if described is not None else None if kind == "auto" else by_kind(kind)
        return cls(engine=engine, fixed=engine is not None)


@dataclass(frozen=True, slots=True)
class Seen:
    """One look and all that was made of it."""

    look: Look
    observation: Observation
    reading: Reading
    verdict: Verdict


def step(
    mind: Mind,
    look: Look,
    settings: Settings,
    *,
    canary: CanaryOutcome | None = None,
    own_canary: CanaryRequest | None = None,
    witness: Witness | None = None,
    loop: LoopEvidence | None = None,
) -> tuple[Mind, Seen]:
    """Read and judge one look.

    Args:
        mind: What is remembered of the target.
        look: What its endpoints said.
        settings: The target's patience.
        canary: A canary that ended before this look's page was fetched.
        own_canary: A canary of ours that is in flight during this look.
        witness: What second looks say (GPU, container).
        loop: Event-loop evidence from a heartbeat's side port; the one on the engine's own page is used otherwise.
    """
    mind, reading, facts = _read(mind, look)
    if mind.engine is not None and mind.engine.sleeps_by_timer and any(lane.asleep for lane in reading.lanes):
        mind = replace(mind, slept=True)
    mind, reading = _without_abandoned(mind, reading, canary)
    if mind.slept:
        facts = replace(facts, idle_canary="it sleeps when idle, and a request would keep it awake")
    observation = _observation(mind, look, reading, facts)
    witness = witness or Witness()
    if witness.in_flight is None:
        witness = replace(witness, in_flight=reading.in_flight)
    observation = replace(
        observation,
        canary=canary,
        own_canary=own_canary,
        witness=witness,
        loop=loop or reading.loop,
    )
    history, verdict = judge(mind.history, observation, look.t, settings)
    mind = replace(mind, history=history, slept=mind.slept and not verdict.restarted)
    return mind, Seen(look, observation, reading, verdict)


def _read(mind: Mind, look: Look) -> tuple[Mind, Reading, Facts]:
    if mind.engine is not None and mind.engine.metrics_path is None:
        return mind, mind.engine.read(Samples(), look, mind.known), mind.engine.facts(Samples(), mind.known)
    if look.metrics.status != 200:
        return _unloaded(mind, look) or _by_answers(mind, look) or (mind, Reading(), _facts(mind, Samples()))
    mind, samples = _recognise(mind, look)
    engine = mind.engine
    if engine is None:
        unread = Reading(detail=_no_engine(samples), loading=_warms_up(samples, look))
        return _by_answers(mind, look) or (mind, unread, _facts(mind, samples))
    if engine.metrics_path is None:
        return _read(mind, look)
    reading = engine.read(samples, look, mind.known)
    if not reading.lanes and not reading.detail:
        why = engine.mend.get(0, "its needed series are not on the page")
        reading = replace(reading, detail=f"missing {engine.series[0]}: {why}")
    if len(reading.lanes) > MOST_LANES:
        words = f"{len(reading.lanes)} lanes on one page, more than {MOST_LANES}: no engine has so many ranks"
        reading = replace(reading, lanes=(), detail=words)
    elif any(len(lane.lane) > LONGEST_LANE for lane in reading.lanes):
        words = f"a lane's name is longer than {LONGEST_LANE} letters: no engine calls a rank so"
        reading = replace(reading, lanes=(), detail=words)
    return mind, reading, engine.facts(samples, mind.known)


def _recognise(mind: Mind, look: Look) -> tuple[Mind, Samples]:
    """Find the adapter of this page, and read the samples that it needs; of a page that none knows, a sketch.

    A page that the adapter in use does not know any more may be another engine's: its server was replaced.
    """
    body, engine = look.metrics.body, mind.engine
    samples = read(body, engine.series) if engine is not None else Samples()
    if engine is not None and (mind.fixed or engine.recognises(samples)):
        return mind, samples
    shown = sketch(body)
    found = detect(shown)
    if found is None:
        return mind, shown if engine is None else samples
    return replace(mind, engine=found), samples if found is engine else read(body, found.series)


def _unloaded(mind: Mind, look: Look) -> tuple[Mind, Reading, Facts] | None:
    """Read an answer that says that the model is unloaded on purpose."""
    for engine in engines() if mind.engine is None else (mind.engine,):
        if (words := engine.unloaded(look.metrics)) is not None:
            asleep = LaneEvidence("0", {}, 0.0, 0.0, asleep=words)
            return replace(mind, engine=engine), Reading(lanes=(asleep,)), engine.facts(Samples(), mind.known)
    return None


def _without_abandoned(mind: Mind, reading: Reading, canary: CanaryOutcome | None) -> tuple[Mind, Reading]:
    """Learn which open requests nobody waits for, and take them off.

    A queue is served in order: what is still open when a canary that came later was answered was abandoned.
    """
    if mind.engine is None or mind.engine.less_abandoned is None or reading.in_flight is None:
        return mind, reading
    answered = canary is not None and canary.result == "answered"
    abandoned = reading.in_flight if answered else min(mind.abandoned, reading.in_flight)
    return replace(mind, abandoned=abandoned), mind.engine.less_abandoned(reading, abandoned)


def _by_answers(mind: Mind, look: Look) -> tuple[Mind, Reading, Facts] | None:
    """Read a look by the adapter that other answers than a metrics page tell, if no adapter is known yet and they do."""
    found = detect_by_answers({"/metrics": look.metrics, **look.extra}) if mind.engine is None else None
    if found is None:
        return None
    return _read(replace(mind, engine=found), replace(look, metrics=look.extra.get(found.look_path, look.metrics)))


def _facts(mind: Mind, samples: Samples) -> Facts:
    return mind.engine.facts(samples, mind.known) if mind.engine is not None else Facts("unknown")


def _warms_up(samples: Samples, look: Look) -> str | None:
    """A multi-process server makes its first series with its first work; until then its page is empty (SGLang)."""
    if samples.by_name or look.health is None or look.health.status != 503:
        return None
    return "its /health answers 503 and its metrics page is still empty"


def _no_engine(samples: Samples) -> str:
    steps = ", ".join(engine.series[0] for engine in engines() if engine.series and engine.tier == 1)
    if not samples.by_name:
        return f"the page has no samples at all; {NO_SERIES.format(steps=steps)}"
    return NO_SERIES.format(steps=steps)


def _observation(mind: Mind, look: Look, reading: Reading, facts: Facts) -> Observation:
    health = look.health.status if look.health is not None else None
    reach, detail = reach_of(look, mind.engine, served=mind.history.served)
    if reach != "answered":
        return Observation(unix=look.unix, reach=reach, detail=detail, facts=facts, health=health)
    death, died_loading = reading.death, reading.died_loading
    if (refusal := load_failed(look.metrics)) is not None:
        death, died_loading = refusal, True
    telling = mind.engine is None or not mind.engine.health_is_work
    if death is None and telling and (look.metrics.status or 0) >= 500 and (health or 0) >= 500:
        death = f"only 5xx answers: /metrics {look.metrics.status}, /health {health}"
    return Observation(
        unix=look.unix,
        reach=reach,
        detail=reading.detail or detail,
        facts=facts,
        lanes=reading.lanes,
        incarnation=reading.incarnation,
        age=_age(reading.started, look.unix),
        health=health,
        loading=reading.loading,
        death=death,
        died_loading=died_loading,
        answers_ok=reading.answers_ok,
        answers_failed=reading.answers_failed,
    )


def _age(started: float | None, unix: float) -> float | None:
    """Seconds since the start; unknown if it lies in the future, since one of the two clocks is wrong then."""
    if started is None or started > unix + CLOCKS_DIFFER:
        return None
    return max(0.0, unix - started)
