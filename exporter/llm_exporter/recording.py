"""Writes what was seen of a target as JSON lines, so that a verdict can be repeated and argued about later."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from llm_exporter.clock import Clock
from llm_exporter.engines import Known, Look, Page
from llm_exporter.judge import CanaryOutcome, LoopEvidence, Witness


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
