"""``check``, ``record`` and ``watch``: one target from a terminal, judged by the same monitor as in the service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from llm_common.guard import Guard
from llm_exporter import api
from llm_exporter.clock import SystemClock
from llm_exporter.judge import State
from llm_exporter.judge.words import duration, reading
from llm_exporter.monitor import Monitor
from llm_exporter.recording import Recorder
from llm_exporter.scrape import Scraper
from llm_exporter.snapshot import Snapshot
from llm_exporter.target_config import Target

EXIT = {
    **dict.fromkeys((State.BUSY, State.IDLE, State.SLEEPING, State.STARTING), 0),
    **dict.fromkeys((State.STALLED, State.STUCK, State.STARVED, State.FAILED, State.DOWN), 1),
    **dict.fromkeys((State.UNREACHABLE, State.UNKNOWN), 2),
}
# A rate over less time says little; a server that is fine needs no longer look.
RATE_TIME = 10.0
PAUSE = 2.0
GENTLE_PAUSE = 5.0
FINAL = frozenset({State.STUCK, State.FAILED})


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check found, what it did for it, and what it was given: ``--for`` in seconds, ``--canary``."""

    snapshot: Snapshot
    looks: int
    canaries: int
    seconds: float | None = None
    asked: bool = False


async def check(target: Target, seconds: float | None, *, canary: bool) -> Checked:
    """Look until the state can be told.

    Without `seconds`: until a rate is known, or work that stands still has stood longer than ``stalled_after``. With it,
    for that long and two looks more, so that a bound of that length can pass; an end that cannot change comes earlier.
    """
    clock = SystemClock()
    options = target.options
    # Without the canary, the bound alone is trusted: whoever gives the time wants the answer.
    settings = replace(options.canary, confirm=canary and options.canary.confirm, idle="auto" if canary else "off")
    target = replace(target, options=replace(options, canary=settings))
    scraper, guard = Scraper(), Guard()
    monitor = Monitor(target, scraper, clock, guard)
    began = clock.monotonic()
    looks = 0
    before: State | None = None
    try:
        while True:
            snapshot = await monitor.observe()
            looks += 1
            settled, before = before is snapshot.verdict.state, snapshot.verdict.state
            # Only the pauses are shorter than in the service: a page may take as long as it may there.
            hurried = PAUSE if monitor.interval <= GENTLE_PAUSE else GENTLE_PAUSE
            pause = hurried if options.interval is None else options.interval
            if not monitor.asking and _enough(snapshot, clock.monotonic() - began, seconds, pause, settled, asked=canary):
                # The clause about our requests is true only if the last look was at rest.
                return Checked(snapshot, looks, sum(monitor.snapshot.canaries.values()), seconds, canary)
            await clock.sleep(pause)
    finally:
        await monitor.stop()
        await guard.stop()
        await scraper.close()


def _enough(snapshot: Snapshot, elapsed: float, seconds: float | None, pause: float, settled: bool, *, asked: bool) -> bool:
    state = snapshot.verdict.state
    if state in FINAL:
        return True
    if seconds is not None:
        return elapsed >= seconds + 2 * pause and not (asked and state is State.STALLED and snapshot.verdict.wants)
    if not settled:
        # One look may fail, or fall on a change; what two in a row say is said.
        return False
    if asked and state is State.IDLE and not snapshot.canaries:
        return elapsed >= 3 * snapshot.target.options.canary.timeout
    if asked and snapshot.canaries.get("silent", 0) == 1:
        return False
    held = bool(snapshot.verdict.held)
    if held and state in (State.BUSY, State.STALLED):
        moving = snapshot.last_progress_at is not None and snapshot.looked_at is not None and (
            snapshot.looked_at - snapshot.last_progress_at <= 2 * pause
        )  # fmt: skip
        return elapsed >= RATE_TIME if moving else state is State.STALLED
    return True


def report(checked: Checked) -> str:
    """The check's answer for a terminal."""
    snapshot = checked.snapshot
    verdict = snapshot.verdict
    sent = (
        f"{checked.canaries} canary request{'s' if checked.canaries > 1 else ''} sent"
        if checked.canaries
        else "no request sent"
    )
    sentence = verdict.sentence if "request sent" in verdict.sentence else f"{verdict.sentence}; {sent}"
    lines = [sentence]
    engine = f"{snapshot.kind} {snapshot.version or ''}".strip() or "not recognised"
    lines.append(
        f"  engine: {engine}; model: {snapshot.model or 'not known'}; own /health: {snapshot.native_status or 'none'}"
    )
    for lane in verdict.lanes:
        if len(verdict.lanes) > 1:
            lines.append(f"  lane {lane.lane}: {lane.state.value}: {lane.reason}")
        if lane.bound is not None and lane.stalled_seconds:
            lines.append(f"  flat for {lane.stalled_seconds:.0f} s; bound {lane.bound.seconds:.0f} s: {lane.bound.why}")
        for item in lane.evidence:
            moved = snapshot.unix(item.moved_at)
            ago = "" if moved is None else f" (moved {max(0.0, (snapshot.looked_at or moved) - moved):.0f} s ago)"
            lines.append(f"  {item.series} = {reading(item.value)}{ago}")
    if verdict.would_change:
        lines.append(f"  would change it: {verdict.would_change}")
    if verdict.state is State.STALLED:
        lines += [f"  to know more: {option}" for option in _longer(checked)]
    return "\n".join(lines)


def _longer(checked: Checked) -> list[str]:
    """What this check was not given, that could tell a hang from one long step."""
    bounds = [lane.bound.seconds for lane in checked.snapshot.verdict.lanes if lane.bound is not None]
    missing = []
    if checked.seconds is None or any(checked.seconds < bound for bound in bounds):
        missing.append(f"--for {duration(max(bounds, default=0.0))} watches until its bound" if bounds else "--for 5m")
    if not checked.asked:
        missing.append("--canary lets it be asked for one token")
    return missing


def as_json(checked: Checked) -> api.Json:
    """The check's answer for machines."""
    return {**api.target_in_full(checked.snapshot), "looks": checked.looks, "canaries_sent": checked.canaries}


async def record(target: Target, seconds: float, path: Path, *, canary: bool) -> int:
    """Watch a target for some time and write everything down; returns the number of looks."""
    clock = SystemClock()
    options = target.options
    if not canary:
        quiet = replace(options.canary, confirm=False, idle="off")
        target = replace(target, options=replace(options, canary=quiet))
    scraper, guard, recorder = Scraper(), Guard(), Recorder(path, clock)
    monitor = Monitor(target, scraper, clock, guard, recorder=recorder)
    began = due = clock.monotonic()
    looks = 0
    try:
        while clock.monotonic() - began < seconds:
            await monitor.observe()
            looks += 1
            due = max(due + monitor.interval, clock.monotonic())
            await clock.sleep(min(due, began + seconds) - clock.monotonic())
    finally:
        await monitor.stop()
        await guard.stop()
        await scraper.close()
        recorder.close()
    return looks


async def watch(targets: Sequence[Target], show: Callable[[Sequence[Snapshot]], None]) -> NoReturn:
    """Show all targets after every look, until cancelled."""
    clock = SystemClock()
    scraper, guard = Scraper(), Guard()
    changed = asyncio.Event()
    monitors = [
        Monitor(target, scraper, clock, guard, publish=lambda _: changed.set(), sends_canaries=False) for target in targets
    ]
    try:
        for monitor in monitors:
            guard.spawn(f"monitor:{monitor.target.name}", monitor.run)
        while True:
            changed.clear()
            show([monitor.snapshot for monitor in monitors])
            await changed.wait()
    finally:
        await guard.stop()
        for monitor in monitors:
            await monitor.stop()
        await scraper.close()
