"""Judge a recording exactly as the live monitor judges: same looks, same `pipeline.step`, recorded canaries where asked.

Where the judge asks, a recorded canary answers: the next one, or one that was sent earlier and answered no question yet.
Where none is recorded, there is none to be had.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from .engines import Engine, Known, Look, Page
from .engines.custom import Described, adapter
from .exposition import sketch
from .judge import CanaryOutcome, CanaryRequest, Failure, LoopEvidence, Settings, Witness
from .pipeline import Mind, Seen, step


class RecordingError(Exception):
    """A line of a recording that is none; says which and why."""


def lines_of(path: Path) -> Iterator[Mapping[str, Any]]:
    """The records of a plain or gzipped recording.

    Raises:
        RecordingError: A line is no JSON object; a last line that was cut off by a crash of the recorder is left out.
    """
    text = _plain(path).decode("utf-8", "replace")
    lines = text.rstrip("\n").split("\n")  # not splitlines: a page may hold what Unicode calls a line separator
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            if number == len(lines) and line.startswith("{"):
                return
            raise RecordingError(f"{path}, line {number}: no JSON: {error}") from error
        if not isinstance(record, dict):
            raise RecordingError(f"{path}, line {number}: expected an object, found {type(record).__name__}")
        yield record


def _plain(path: Path) -> bytes:
    """The bytes of a recording, as far as a gzipped one goes: its recorder may have been killed."""
    raw = path.read_bytes()
    plain = bytearray()
    while raw[:2] == b"\x1f\x8b":
        inflater = zlib.decompressobj(wbits=31)
        try:
            plain += inflater.decompress(raw)
        except zlib.error as error:
            raise RecordingError(f"{path}: broken gzip: {error}") from error
        if not inflater.eof:
            return bytes(plain)
        raw = inflater.unused_data
    return bytes(plain) or raw


def page_of(record: Mapping[str, Any] | None) -> Page | None:
    """A recorded response or failure."""
    if record is None:
        return None
    if "status" in record:
        return Page(
            status=int(record["status"]),
            body=str(record.get("body", "")),
            seconds=float(record.get("seconds", 0.0)),
            ctype=str(record.get("ctype", "")),
            headers=dict(record.get("headers") or {}),
        )
    kind: Failure = next((known for known in get_args(Failure) if known == record.get("kind")), "other")
    return Page(seconds=float(record.get("seconds", 0.0)), kind=kind, error=str(record.get("error", "")))


def look_of(record: Mapping[str, Any]) -> Look:
    """A recorded look."""
    metrics = page_of(record["metrics"])
    extra = {path: page for path, raw in (record.get("extra") or {}).items() if (page := page_of(raw)) is not None}
    return Look(
        t=float(record["t"]),
        unix=float(record.get("unix", record["t"])),
        metrics=metrics or Page(kind="other", error="nothing recorded"),
        health=page_of(record.get("health")),
        extra=extra,
    )


def canary_of(record: Mapping[str, Any]) -> CanaryOutcome:
    """A recorded canary; its kind is the question that it answers."""
    said = record["canary"]
    status = said.get("status")
    lane = said.get("lane")
    return CanaryOutcome(
        kind=None,
        result=said["result"],
        began=float(record["t"]),
        seconds=float(said.get("seconds", 0.0)),
        status=None if status is None else int(status),
        lane=None if lane is None else str(lane),
    )


def known_of(record: Mapping[str, Any]) -> Known:
    """What else was known of the server from then on."""
    about = record["about"]
    return Known(about.get("version"), about.get("model"), about.get("options") or {})


def witness_of(record: Mapping[str, Any]) -> Witness | None:
    """What second looks said."""
    return Witness(**record["witness"]) if "witness" in record else None


def loop_of(record: Mapping[str, Any]) -> LoopEvidence | None:
    """What a heartbeat's side port said."""
    return LoopEvidence(**record["loop"]) if "loop" in record else None


READERS: Mapping[str, Callable[[Mapping[str, Any]], object]] = {
    "metrics": look_of, "canary": canary_of, "about": known_of, "witness": witness_of, "loop": loop_of,
}  # fmt: skip


def _in_order(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The records in the order in which they began; one that the format does not know is an error, not a guess."""
    found: list[tuple[float, Mapping[str, Any]]] = []
    for record in records:
        try:
            found.append((float(record.get("t", 0.0)), record))
            for key, made in READERS.items():
                if key in record:
                    made(record)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            words = f"the record at t={record.get('t', 'none')} is not of a recording's format"
            raise RecordingError(f"{words}: {type(error).__name__}: {error}") from error
    return [record for _, record in sorted(found, key=lambda pair: pair[0])]


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
    ordered = _in_order(records)
    own = (d for d in described if d.kind == engine or (engine == "auto" and _shows(ordered, d)))
    mind = Mind.of(engine, next(own, None))
    # The first is known from the beginning on, also where a look began before it was written.
    mind = next((replace(mind, known=known_of(record)) for record in ordered if "about" in record), mind)
    canaries = [canary_of(record) for record in ordered if "canary" in record]
    asked: CanaryRequest | None = None
    under_way: CanaryOutcome | None = None
    none_at: float | None = None
    used_until = float("-inf")
    for record in ordered:
        if "about" in record:
            mind = replace(mind, known=known_of(record))
        if "metrics" not in record:
            continue
        look = look_of(record)
        ended: CanaryOutcome | None = None
        if under_way is not None and asked is not None and under_way.ended <= look.t:
            ended = replace(under_way, kind=asked.kind)
            under_way, used_until = None, ended.ended
        elif none_at is not None and asked is not None:
            ended = CanaryOutcome(asked.kind, "none", none_at, 0.0, words="none is recorded")
        none_at = None
        patience = settings if isinstance(settings, Settings) else settings(mind.engine)
        flying = under_way is not None and under_way.began <= look.t
        mind, seen = step(
            mind,
            look,
            patience,
            canary=ended,
            own_canary=flying,
            own_canary_lane=under_way.lane if flying and under_way else None,
            witness=witness_of(record),
            loop=loop_of(record),
        )
        yield seen
        wants = seen.verdict.wants
        if under_way is not None and not flying and wants is None:
            canaries.insert(0, under_way)
            under_way = None
        if wants is not None and under_way is None:
            asked = wants
            under_way = _next(canaries, wants, look.t - 2 * patience.interval, used_until)
            # What an earlier canary said stands; that none is recorded for the judge's next try adds nothing to it.
            none_at = look.t if under_way is None and mind.history.cannot is None else None


def _shows(records: Sequence[Mapping[str, Any]], described: Described) -> bool:
    """Whether the first page that was answered with samples is a described engine's."""
    bodies = (str(record["metrics"].get("body", "")) for record in records if "metrics" in record)
    page = next((samples for body in bodies if (samples := sketch(body)).by_name), None)
    return page is not None and adapter(described).recognises(page)


def _next(canaries: list[CanaryOutcome], wants: CanaryRequest, since: float, used_until: float) -> CanaryOutcome | None:
    """The recorded canary that answers a question: the first from then on, else the newest that answered none before.

    A recording made with other patience asked at other times; the judge itself tells whether an earlier answer still says
    anything, since it knows since when the evidence is flat.
    """
    # Which of several idle lanes is asked first is a matter of turns; the last question is about one lane.
    fit = [c for c in canaries if wants.kind == "idle" or wants.lane is None or c.lane in (None, wants.lane)]
    later = [c for c in fit if c.began >= since]
    earlier = [c for c in fit if used_until <= c.began < since]
    chosen = later[0] if later else earlier[-1] if earlier else None
    if chosen is not None:
        canaries.remove(chosen)
    return chosen


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
