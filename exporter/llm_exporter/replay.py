"""Judge a recording exactly as the live monitor judges: same looks, same `pipeline.step`, recorded canaries where asked.

Where the judge asks, a recorded canary answers: the next one, or one that was sent earlier and answered no question yet.
Where none is recorded, there is none to be had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .engines import Engine
from .engines.custom import Described, adapter
from .exposition import sketch
from .judge import CanaryOutcome, CanaryRequest, Settings
from .pipeline import Mind, Seen, step
from .recording import canary_of, in_order, known_of, look_of, loop_of, witness_of


def replay(
    records: Iterable[Mapping[str, Any]],
    settings: Settings | Callable[[Engine | None], Settings],
    engine: str = "auto",
    described: Sequence[Described] = (),
) -> Iterator[Seen]:
    """Judge every recorded look, in the order in which the looks began.

    Args:
        records: The recording.
        settings: The patience; it may be a function of the engine, since engines bring defaults of their own and a page may
            tell the engine.
        engine: The engine's kind, or ``auto``.
        described: Engines that the operator described. ``auto`` takes the first of them whose series are recorded.
    """
    ordered = in_order(records)
    own = (d for d in described if d.kind == engine or (engine == "auto" and _shows(ordered, d)))
    mind = Mind.of(engine, next(own, None))
    # The first is known from the beginning on, also where a look began before it was written.
    mind = next((replace(mind, known=known_of(record)) for record in ordered if "about" in record), mind)
    canaries = RecordedCanaries([canary_of(record) for record in ordered if "canary" in record])
    for record in ordered:
        if "about" in record:
            mind = replace(mind, known=known_of(record))
        if "metrics" not in record:
            continue
        look = look_of(record)
        patience = settings if isinstance(settings, Settings) else settings(mind.engine)
        ended = canaries.ended(look.t)
        mind, seen = step(
            mind,
            look,
            patience,
            canary=ended,
            own_canary=canaries.flying(look.t),
            witness=witness_of(record),
            loop=loop_of(record),
        )
        yield seen
        canaries.ask(seen.verdict.wants, look.t, patience.interval, answered_before=mind.history.cannot is not None)


class RecordedCanaries:
    """The canaries of a recording as answers to the judge's questions; at most one is under way."""

    def __init__(self, canaries: Sequence[CanaryOutcome]) -> None:
        self._left = list(canaries)
        self._asked: CanaryRequest | None = None
        self._under_way: CanaryOutcome | None = None
        self._none_at: float | None = None
        self._used_until = float("-inf")

    def flying(self, t: float) -> CanaryRequest | None:
        """The one that was in flight at `t`, to the lane that it was recorded with."""
        if self._asked is None or self._under_way is None or self._under_way.began > t:
            return None
        return replace(self._asked, lane=self._under_way.lane)

    def ended(self, t: float) -> CanaryOutcome | None:
        """The one that ended by `t`, or that there was none to be had; each is told once."""
        none_at, self._none_at = self._none_at, None
        if self._asked is None:
            return None
        if self._under_way is not None and self._under_way.ended <= t:
            outcome, self._under_way = self._under_way, None
            self._used_until = outcome.ended
            return replace(outcome, kind=self._asked.kind)
        return None if none_at is None else CanaryOutcome(self._asked.kind, "none", none_at, 0.0, words="none is recorded")

    def ask(self, wants: CanaryRequest | None, t: float, interval: float, *, answered_before: bool) -> None:
        """What the judge asks for after the look at `t`; None takes back a question whose canary was not yet sent.

        What an earlier canary said stands (`answered_before`); that none is recorded for the next try adds nothing to it.
        """
        if wants is None:
            if self._under_way is not None and self.flying(t) is None:
                self._left.insert(0, self._under_way)
                self._under_way = None
        elif self._under_way is None:
            self._asked = wants
            self._under_way = self._next(wants, t - 2 * interval)
            self._none_at = t if self._under_way is None and not answered_before else None

    def _next(self, wants: CanaryRequest, since: float) -> CanaryOutcome | None:
        """The one that answers a question: the first from then on, else the newest that answered none before.

        A recording made with other patience asked at other times; the judge itself tells whether an earlier answer still
        says anything, since it knows since when the evidence is flat.
        """
        # Which of several idle lanes is asked first is a matter of turns; the last question is about one lane.
        fit = [c for c in self._left if wants.kind == "idle" or wants.lane is None or c.lane in (None, wants.lane)]
        later = [c for c in fit if c.began >= since]
        earlier = [c for c in fit if self._used_until <= c.began < since]
        chosen = later[0] if later else earlier[-1] if earlier else None
        if chosen is not None:
            self._left.remove(chosen)
        return chosen


def _shows(records: Sequence[Mapping[str, Any]], described: Described) -> bool:
    """Whether the first page that was answered with samples is a described engine's."""
    bodies = (str(record["metrics"].get("body", "")) for record in records if "metrics" in record)
    page = next((samples for body in bodies if (samples := sketch(body)).by_name), None)
    return page is not None and adapter(described).recognises(page)


def report(seen: Seen, target: str) -> list[dict[str, Any]]:
    """The lines that ``llm-exporter replay`` prints for one look: one per lane, or one with lane null."""
    verdict = seen.verdict
    common: dict[str, Any] = {"t": seen.look.t, "target": target}
    if not verdict.lanes:
        whole = {"lane": None, "state": verdict.state.value, "reason": verdict.reason, "progress": verdict.progress}
        return [common | whole | {"held": verdict.held, "stalled_seconds": 0.0}]
    return [
        common
        | {
            "lane": lane.lane,
            "state": lane.state.value,
            "reason": lane.reason,
            "progress": lane.progress,
            "held": lane.held,
            "stalled_seconds": round(lane.stalled_seconds, 3),
        }
        for lane in verdict.lanes
    ]
