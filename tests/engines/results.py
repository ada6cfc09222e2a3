"""The page ``docs/reference/tested-engines.md``, made from what a run saw."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engines.exporter import Watch

HEAD = """# Tested against real engines

Written by `make test-engines` (`scripts/engines/run.sh`) on {date}, Python {python}, {cores} cores:
{passed} of {total} cases as expected.

Each case starts a real engine (random weights, CPU), gives it real requests, and lets the real exporter judge it with bounds
of seconds: `interval` 1s, `stalled_after` 5s, `stuck_after` 15s, `start_grace` 0s, canaries every 8s with a `timeout` of 4s.
A hang is made with SIGSTOP on the engine's process (its web server goes on answering), or by freezing the decoding thread
alone (llama-server is one process). The column "said" is every state of the case in order.

Not run by us: GPUs, SGLang, TGI, TEI and the engines of the second tier; what is known of those comes from their sources.
"""

TABLE = """
## {engine}

| case | must be said | said | ok |
|---|---|---|---|
"""


@dataclass
class Row:
    """One case: what was done to which engine, what had to be said, and what was."""

    engine: str
    case: str
    expected: str
    said: str
    note: str = ""
    passed: bool = True
    date: str = ""


class Record:
    """What one test puts into the table of results."""

    def __init__(self) -> None:
        self.row: Row | None = None

    def __call__(
        self,
        engine: str,
        case: str,
        watch: Watch,
        expected: str,
        since: float = 0.0,
        lane: str | None = None,
        note: str = "",
    ) -> None:
        """Note a case; ``expected`` in words, the states from the watch."""
        self.row = Row(engine, case, expected, " → ".join(watch.states(since, lane)), note)


def page(rows: Sequence[Row]) -> str:
    """The whole page."""
    text = HEAD.format(
        date=", ".join(sorted({row.date for row in rows})),
        python=platform.python_version(),
        cores=os.cpu_count(),
        passed=sum(row.passed for row in rows),
        total=len(rows),
    )
    for engine in dict.fromkeys(row.engine for row in rows):
        text += TABLE.format(engine=engine)
        for row in rows:
            if row.engine == engine:
                said = row.said + (f" ({row.note})" if row.note else "")
                text += f"| {row.case} | {row.expected} | {said} | {'yes' if row.passed else '**no**'} |\n"
    return text


def merged(kept: Path, test: str, row: Row) -> list[Row]:
    """Put the row of a test over its earlier one in the file ``kept``; returns all rows there are."""
    row.date = datetime.datetime.now(datetime.UTC).date().isoformat()
    rows: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    rows[test] = asdict(row)
    kept.write_text(json.dumps(rows, indent=1, ensure_ascii=False), encoding="utf-8")
    return [Row(**fields) for fields in rows.values()]
