"""What was seen of a target as JSON lines, written and read, so that a verdict can be repeated and argued about later."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, get_args

from llm_exporter.clock import Clock
from llm_exporter.engines import Known, Look, Page
from llm_exporter.judge import CanaryOutcome, Failure, LoopEvidence, Witness


class Recorder:
    """A recording in the making; ``t`` counts from its creation. A name that ends in ``.gz`` is gzipped."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._told = False
        self._file: IO[str]
        if path.suffix == ".gz":
            self._file = gzip.open(path, "wt", encoding="utf-8")  # noqa: SIM115 - open as long as the recorder
        else:
            self._file = path.open("w", encoding="utf-8")

    def _write(self, t: float, record: Mapping[str, Any]) -> None:
        self._file.write(json.dumps({"t": round(t - self._began, 3), **record}, ensure_ascii=False) + "\n")
        # An interrupted recording keeps what it has.
        self._file.flush()

    def look(self, look: Look, witness: Witness | None = None, loop: LoopEvidence | None = None) -> None:
        """One observation, with what second looks said at the same time."""
        record: dict[str, Any] = {"unix": round(look.unix, 3), "metrics": _page(look.metrics)}
        if look.health is not None:
            record["health"] = _page(look.health)
        if look.extra:
            record["extra"] = {path: _page(page) for path, page in look.extra.items()}
        if witness is not None and witness != Witness():
            record["witness"] = {name: value for name, value in asdict(witness).items() if value not in (None, "")}
        if loop is not None:
            record["loop"] = asdict(loop)
        self._write(look.t, record)

    def canary(self, outcome: CanaryOutcome) -> None:
        """One canary that ended; one that could not be sent is none."""
        if outcome.result == "none":
            return
        said: dict[str, Any] = {"result": outcome.result, "seconds": round(outcome.seconds, 3)}
        if outcome.status is not None:
            said["status"] = outcome.status
        if outcome.lane is not None:
            said["lane"] = outcome.lane
        self._write(outcome.began, {"canary": said})

    def about(self, known: Known) -> None:
        """What else is known of the server: from the beginning on, and from now on where that changes."""
        about = {"version": known.version, "model": known.model, "options": dict(known.options)}
        at = self._clock.monotonic() if self._told else self._began
        self._told = True
        self._write(at, {"about": {key: value for key, value in about.items() if value}})

    def event(self, words: str) -> None:
        """A note for people; never evidence."""
        self._write(self._clock.monotonic(), {"event": words})

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


def _page(page: Page) -> dict[str, Any]:
    if page.status is None:
        return {"error": page.error or "", "kind": page.kind or "other", "seconds": round(page.seconds, 4)}
    record: dict[str, Any] = {
        "status": page.status,
        "seconds": round(page.seconds, 4),
        "ctype": page.ctype,
        "body": page.body,
    }
    if page.headers:
        record["headers"] = dict(page.headers)
    return record


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


def in_order(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
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
