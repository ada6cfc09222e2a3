"""All monitors: started, stopped and reconfigured as the configuration and the discoveries say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from llm_common.guard import Guard
from llm_exporter import checks
from llm_exporter.clock import Clock
from llm_exporter.lines import Lines, render, render_stale
from llm_exporter.loop_lag import LoopLag
from llm_exporter.monitor import Monitor
from llm_exporter.scrape import Scraper
from llm_exporter.snapshot import Snapshot, outdated
from llm_exporter.target_config import Target

_log = logging.getLogger("llm.fleet")
SLICE = 100


class Fleet:
    """The watched targets by name.

    Targets that stay through a change of configuration keep their history: same name, same URL, same engine.
    """

    def __init__(
        self, scraper: Scraper, clock: Clock, guard: Guard, lag: LoopLag | None = None, *, sends_canaries: bool = True
    ) -> None:
        self._scraper = scraper
        self._clock = clock
        self._guard = guard
        self._lag = lag
        self._sends_canaries = sends_canaries
        self._monitors: dict[str, Monitor] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._lines: dict[str, Lines] = {}
        self._late_of_gone = 0
        self._told = False

    def __len__(self) -> int:
        return len(self._monitors)

    async def set_targets(self, targets: Iterable[Target]) -> None:
        """Watch exactly these targets from now on."""
        self._told = True
        wanted = {target.name: target for target in targets}
        gone = [name for name, monitor in self._monitors.items() if not _same(monitor, wanted.get(name))]
        await self._drop(gone)
        for name in gone:
            _log.info("the target, as it was, is not watched any more", extra={"target": name})
        for number, (name, target) in enumerate(wanted.items()):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            monitor = self._monitors.get(name)
            if monitor is None:
                self._add(target)
            elif monitor.target != target:
                monitor.reconfigure(target)
                self._take(monitor.snapshot)

    def _add(self, target: Target) -> None:
        monitor = Monitor(
            target, self._scraper, self._clock, self._guard,
            lag=self._lag, publish=self._take, sends_canaries=self._sends_canaries,
        )  # fmt: skip
        self._monitors[target.name] = monitor
        self._lines[target.name] = render_stale(monitor.snapshot)
        self._tasks[target.name] = self._guard.spawn(f"monitor:{target.name}", monitor.run)

    async def _drop(self, names: Sequence[str]) -> None:
        monitors, tasks = [], []
        for name in names:
            monitors.append(self._monitors.pop(name))
            tasks.append(self._tasks.pop(name))
            del self._lines[name]
        self._late_of_gone += sum(monitor.late for monitor in monitors)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(monitor.stop() for monitor in monitors))

    def _take(self, snapshot: Snapshot) -> None:
        if snapshot.name in self._monitors:
            self._lines[snapshot.name] = render_stale(snapshot) if snapshot.looked is None else render(snapshot)

    def monitor(self, name: str) -> Monitor | None:
        """The monitor of a target, or None."""
        return self._monitors.get(name)

    def snapshot(self, name: str) -> Snapshot | None:
        """What may be said of a target now, or None if it is not watched."""
        monitor = self._monitors.get(name)
        return None if monitor is None else self._current(monitor.snapshot)

    def snapshots(self) -> Iterator[Snapshot]:
        """What may be said of every target now, by name."""
        for name in sorted(self._monitors):
            yield self._current(self._monitors[name].snapshot)

    def _current(self, snapshot: Snapshot) -> Snapshot:
        return outdated(snapshot) if snapshot.stale(self._clock.monotonic()) else snapshot

    async def lines(self) -> Sequence[Lines]:
        """The rendered lines of every target; between slices of targets the event loop may do something else."""
        now = self._clock.monotonic()
        found = []
        for number, (name, monitor) in enumerate(list(self._monitors.items())):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            if monitor.snapshot.stale(now):
                found.append(render_stale(monitor.snapshot))
            elif name in self._lines:
                found.append(self._lines[name])
        return found

    @property
    def late(self) -> int:
        """Observations that came too late or were dropped for it, ever."""
        return self._late_of_gone + sum(monitor.late for monitor in self._monitors.values())

    @property
    def looked_at_all(self) -> bool:
        """Whether it is known which targets there are, and every one had its first look."""
        return self._told and all(monitor.snapshot.looked is not None for monitor in self._monitors.values())

    @property
    def fail_open(self) -> bool:
        """Whether too many targets would fail ``live`` at once."""
        now = self._clock.monotonic()
        snapshots = (monitor.snapshot for monitor in self._monitors.values())
        failing = sum(1 for snapshot in snapshots if not snapshot.checks.live and not snapshot.stale(now))
        return checks.fail_open(failing, len(self._monitors))

    async def stop(self) -> None:
        """Stop watching."""
        await self._drop(list(self._monitors))


def _same(monitor: Monitor, target: Target | None) -> bool:
    """Whether the target is still the same server, so that its history is worth keeping."""
    known = monitor.target
    return target is not None and (known.url, known.engine, known.described) == (
        target.url,
        target.engine,
        target.described,
    )


def merged(configured: Sequence[Target], discovered: Mapping[str, Sequence[Target]]) -> list[Target]:
    """One list of targets: a configured name wins over a discovered one; the sources follow in their order."""
    targets = {target.name: target for target in configured}
    for source, found in discovered.items():
        for target in found:
            if target.name not in targets:
                targets[target.name] = replace(target, source=source)
            elif targets[target.name].url != target.url:
                _log.warning("two targets have one name, the first is kept", extra={"target": target.name, "source": source})
    return list(targets.values())
