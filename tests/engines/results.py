"""The page ``docs/reference/tested-engines.md``, made from what a run saw."""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engines.exporter import IMPATIENT, Watch

HEAD = """# Tested against real engines

Written by `make test-engines` (`scripts/engines/run.sh`) on {date}, Python {python}, {cores} cores:
{passed} of {total} cases as expected.

Each case starts a real engine (random weights, CPU), gives it real requests, and lets the real exporter judge it with bounds
of seconds:
{bounds}.
A hang is made with SIGSTOP on the engine's process (its web server goes on answering), or by freezing the decoding thread
alone (llama-server is one process). The column "said" is every state of the case in order.

Not run by us: GPUs, SGLang, TGI, TEI and the engines of the second tier; what is known of those comes from their sources.
"""

TABLE = """
## {engine}

| case | must be said | said | ok |
|---|---|---|---|
"""


def story(states: Sequence[str]) -> str:
    """States in order; two that take turns three times or more are said once."""
    told: list[str] = []
    index = 0
    while index < len(states):
        turn, end = states[index : index + 2], index + 2
        while len(turn) == 2 and list(states[end : end + 2]) == list(turn):
            end += 2
        if (end - index) // 2 >= 3:
            told.append(f"{turn[0]} ⇄ {turn[1]} ({(end - index) // 2} times)")
            index = end
        else:
            told.append(states[index])
            index += 1
    return " → ".join(told)


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
        self.row = Row(engine, case, expected, story(watch.states(since, lane)), note)


def bounds(settings: dict[str, Any]) -> str:
    """The configuration in one line."""
    flat = {**settings, **{f"canary.{key}": value for key, value in settings["canary"].items()}}
    return ", ".join(f"`{key}` {value}" for key, value in flat.items() if isinstance(value, str))


def page(rows: Sequence[Row]) -> str:
    """The whole page."""
    text = HEAD.format(
        date=", ".join(sorted({row.date for row in rows})),
        python=platform.python_version(),
        cores=os.cpu_count(),
        bounds=bounds(IMPATIENT),
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
    with kept.open("a+", encoding="utf-8") as file:
        # vLLM's and llama-server's tests may run at the same time.
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        rows: dict[str, Any] = json.loads(file.read() or "{}")
        rows[test] = asdict(row)
        file.truncate(0)
        file.write(json.dumps(rows, indent=1, ensure_ascii=False))
    return [Row(**fields) for fields in rows.values()]
