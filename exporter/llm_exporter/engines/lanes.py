"""From samples to evidence per lane by a table of facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..exposition import Sample, Samples
from ..judge import LaneEvidence

NOT_IDENTITY = frozenset({"pid"})
"""Labels that tell processes of one server apart (prometheus_client's multi-process mode): merged, never a lane."""

COUNTERS = frozenset({"kv_shown", "preemptions", "prompt_tokens", "generation_tokens", "finished", "steps"})

WHOLE = ""
"""The lane of samples that name none: they speak for the whole server."""

SHARED = COUNTERS - {"kv_shown"}
"""What a lane takes from the whole server where it has none of its own; held work is never shared."""


@dataclass(frozen=True, slots=True)
class Pick:
    """One quantity of a page.

    Attributes:
        names: Exposition names, the newest first; the first that the page has is used.
        where: Only samples with these label values.
        how: How several label sets of one lane become one number, once ``pid`` is merged.
    """

    names: tuple[str, ...]
    where: Mapping[str, str] = field(default_factory=dict)
    how: Literal["sum", "max"] = "sum"


@dataclass(frozen=True, slots=True)
class LaneTable:
    """Where an engine's page keeps what; the fields not named here are those of `LaneEvidence`, None if there is no series.

    Attributes:
        labels: Labels that name a lane; their values are joined by ``/``; a page without them has the lane ``"0"``.
        progress: Counters of which any change is progress. The first is the step series: a page that has it at zero is of an
            engine before its first step, one that lacks it cannot be judged.
        waiting: Every queue of the engine; all must be there.
        optional_waiting: Queues that only some versions or roles have.
        remote_waiting: Likewise, of requests that wait for another server (disaggregation): deferred work.
        kv_more: A finer gauge of the same cache, for its movement alone.
        absent_is_zero: Series of `running` and `waiting` that this engine creates only when first touched (TGI).
    """

    labels: tuple[str, ...]
    progress: tuple[Pick, ...]
    running: Pick | None
    waiting: tuple[Pick, ...]
    optional_waiting: tuple[Pick, ...] = ()
    remote_waiting: tuple[Pick, ...] = ()
    deferred: Pick | None = None
    kv: Pick | None = None
    kv_more: Pick | None = None
    preemptions: Pick | None = None
    prompt_tokens: Pick | None = None
    generation_tokens: Pick | None = None
    finished: Pick | None = None
    steps: Pick | None = None
    absent_is_zero: bool = False

    def untouched(self) -> dict[str, float]:
        """Its progress counters before any was touched, for engines that make a series only then."""
        return {_key(what.names[0], what): 0.0 for what in self.progress}

    def series(self) -> tuple[str, ...]:
        """All exposition names of the table."""
        picks = (
            *(*self.progress, *self.waiting, *self.optional_waiting, *self.remote_waiting),
            *(self.running, self.deferred, self.kv, self.kv_more, self.preemptions),
            *(self.prompt_tokens, self.generation_tokens, self.finished, self.steps),
        )
        return tuple(dict.fromkeys(name for pick in picks if pick for name in pick.names))


def _key(name: str, what: Pick) -> str:
    return name + "".join(f"{{{k}={v}}}" for k, v in what.where.items())


def lane_of(sample: Sample, labels: tuple[str, ...]) -> str:
    """The lane that a sample belongs to, or `WHOLE`."""
    return "/".join(sample.labels[name] for name in labels if sample.labels.get(name)) or WHOLE


def pick(
    samples: Samples, what: Pick | None, labels: tuple[str, ...], *, counter: bool = False
) -> dict[str, tuple[str, float]]:
    """One quantity per lane (`WHOLE` for samples that name none), with the name under which the page has it.

    Several processes' gauges show the same engine: the largest is the freshest. Each counts its own share: counters are
    added, so that one which rests does not hide another that moves.
    """
    if what is None:
        return {}
    for name in what.names:
        found = [s for s in samples.get(name) if all(s.labels.get(k) == v for k, v in what.where.items())]
        if found:
            return {lane: (found[0].name, value) for lane, value in _merged(found, labels, what.how, counter).items()}
    return {}


def _merged(found: Sequence[Sample], labels: tuple[str, ...], how: str, counter: bool) -> dict[str, float]:
    if len(found) == 1:
        return {lane_of(found[0], labels): found[0].value}
    by_series: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for sample in found:
        rest = frozenset((k, v) for k, v in sample.labels.items() if counter or k not in NOT_IDENTITY)
        key = (lane_of(sample, labels), rest)
        by_series[key] = max(by_series.get(key, sample.value), sample.value)
    lanes: dict[str, float] = {}
    for (lane, _), value in by_series.items():
        if lane not in lanes:
            lanes[lane] = value
        else:
            lanes[lane] = max(lanes[lane], value) if how == "max" else lanes[lane] + value
    return lanes


def read_lanes(samples: Samples, table: LaneTable) -> tuple[LaneEvidence, ...]:
    """Evidence of every lane of the page, in the lanes' order."""
    lanes: dict[str, dict[str, Any]] = {}

    def into(what: Pick | None, attribute: str, add: bool = False) -> None:
        for lane, (_, value) in pick(samples, what, table.labels, counter=attribute in COUNTERS).items():
            known = lanes.setdefault(lane, {})
            known[attribute] = value + known.get(attribute, 0.0) if add else value

    for what in table.progress:
        for lane, (name, value) in pick(samples, what, table.labels, counter=True).items():
            lanes.setdefault(lane, {}).setdefault("progress", {})[_key(name, what)] = value
    into(table.running, "running")
    waits = [pick(samples, what, table.labels) for what in table.waiting]
    for lane in list(dict.fromkeys([*lanes, *(name for found in waits for name in found)])):
        if waits and all(lane in found for found in waits):
            lanes.setdefault(lane, {})["waiting"] = sum(found[lane][1] for found in waits)
    for what in (*table.optional_waiting, *table.remote_waiting):
        into(what, "waiting", add=True)
    for what in table.remote_waiting:
        into(what, "deferred", add=True)
    for attribute in ("deferred", "kv", "preemptions", "prompt_tokens", "generation_tokens", "finished", "steps"):
        into(getattr(table, attribute), attribute)
    if table.kv is not None:
        into(replace(table.kv, how="sum"), "kv_shown")
        into(table.kv_more, "kv_shown", add=True)
    lanes = _shared(lanes)
    return tuple(_complete(LaneEvidence(name, **lanes[name]), table) for name in sorted(lanes, key=_lane_order))


def _shared(lanes: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Give what speaks for the whole server to its lanes.

    A lane's own counters decide: a total that another lane moves would hide that this one is wedged. It is taken only where
    a lane has none, or is the only one.
    """
    whole = lanes.get(WHOLE)
    if whole is None:
        return lanes
    named = {name: lane for name, lane in lanes.items() if name != WHOLE}
    if not named:
        return {"0": whole}
    if len(named) == 1:
        return {name: whole | lane | {"progress": whole.get("progress", {}) | lane.get("progress", {})}
                for name, lane in named.items()}  # fmt: skip
    common = {name: value for name, value in whole.items() if name in SHARED or name == "progress"}
    return {name: common | lane for name, lane in named.items()}


def _complete(lane: LaneEvidence, table: LaneTable) -> LaneEvidence:
    if table.absent_is_zero:
        lane = replace(lane, running=lane.running or 0.0, waiting=lane.waiting or 0.0)
    missing: list[str] = []
    if not lane.progress:
        missing.append(table.progress[0].names[0])
    if any(lane.progress.values()) or not _has_steps(lane, table):
        if lane.running is None and table.running is not None:
            missing.append(table.running.names[0])
        if lane.waiting is None and table.waiting:
            missing.append(table.waiting[0].names[0])
    return replace(lane, missing=tuple(missing)) if missing else lane


def _has_steps(lane: LaneEvidence, table: LaneTable) -> bool:
    """Whether the page shows the step series, which is the first of the table, at whatever value."""
    steps = {name.replace(":", "_") for name in table.progress[0].names}
    return any(name.partition("{")[0].replace(":", "_") in steps for name in lane.progress)


def _lane_order(name: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part) if part.isdecimal() else 1 << 30, part) for part in name.split("/"))
