"""The table of the simulated week, and the document around it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.week.play import Total
from benchmarks.week.schedule import Hang
from benchmarks.week.servers import SERVERS
from benchmarks.week.stalls import table as stalls

_PROSE = Path(__file__).with_name("document.md")
_HEAD = (
    "| rule | false restarts | requests lost in them | hangs restarted | told a person | told for nothing | missed "
    "| median detection | downtime |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def table(totals: Sequence[Total]) -> str:
    """The headline."""
    return "\n".join([_HEAD, *(_row(total) for total in totals)])


def _row(total: Total) -> str:
    return (
        f"| {total.rule} | {total.false_restarts} | {total.lost_requests} | {total.restarted} of {total.hangs} "
        f"| {total.paged_only} | {total.false_pages} | {total.missed} | {_clock(total.detection)} "
        f"| {total.downtime / 60:.0f} min |"
    )


def by_kind(totals: Sequence[Total]) -> str:
    """Which rule detects which hang, and how fast."""
    head = "| rule | " + " | ".join(kind.value for kind in Hang) + " |\n|---|" + "---|" * len(Hang)
    rows = []
    for total in totals:
        cells = []
        for kind in Hang:
            happened, found, after = total.of_kind(kind)
            cells.append(f"{found} of {happened}, {_clock(after)}" if found else f"0 of {happened}")
        rows.append(f"| {total.rule} | {' | '.join(cells)} |")
    return "\n".join([head, *rows])


def page(totals: Sequence[Total], seeds: int) -> str:
    """The whole document; its prose is in benchmarks/week/document.md."""
    weeks = seeds * len(SERVERS)
    servers = "\n".join(
        f"| {s.name} | vLLM {s.version} | {s.slots} | {s.prefill_rate:.0f} / {s.decode_rate:g} | {s.chat_per_hour:.0f} "
        f"| {s.batch_jobs} | {s.saturations} | {s.long_prompts} | {s.mass_aborts} | {s.compiles} + {s.first_compiles} "
        f"| {s.sleeps} | {s.redeployments} | {s.loop_stalls} |"
        for s in SERVERS
    )
    return _PROSE.read_text().format(
        weeks=weeks,
        seeds=seeds,
        table=table(totals),
        by_kind=by_kind(totals),
        servers=servers,
        stalls=stalls(),
    )


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"
