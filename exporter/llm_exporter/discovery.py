"""Targets from elsewhere: files and URLs in Prometheus' own format, and labelled containers.

A source, or a part of it, that cannot be read keeps what it said last. A target that a source does not name any more is
dropped after a grace, so that a container that is being restarted keeps its history.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from llm_common.guard import Guard
from llm_exporter.clock import Clock
from llm_exporter.config import Config
from llm_exporter.discovered import Found, SourceError, Template, bare
from llm_exporter.discovery_kubernetes import read_kubernetes
from llm_exporter.discovery_sources import read_docker, read_files, read_url
from llm_exporter.scrape import Scraper
from llm_exporter.target_config import Target

_log = logging.getLogger("llm.discovery")
Read = Callable[[], Awaitable[Found]]


@dataclass(slots=True)
class _Source:
    """One source and what it said: its targets by name, since when some of them are missing, and what was wrong."""

    refresh: float
    read: Read
    targets: dict[str, Target] = field(default_factory=dict)
    missing: dict[str, float] = field(default_factory=dict)
    problems: frozenset[str] = frozenset()


class Discoveries:
    """All sources of one configuration, each refreshed by a task of its own.

    Args:
        scraper: For ``http_sd``.
        clock: Time.
        guard: Owner of the tasks.
        changed: Called after a source's targets changed.
        up: Filled with 1 or 0 per source, for the metric.
    """

    def __init__(
        self, scraper: Scraper, clock: Clock, guard: Guard, changed: Callable[[], Awaitable[None]], up: dict[str, bool]
    ) -> None:
        self._scraper = scraper
        self._clock = clock
        self._guard = guard
        self._changed = changed
        self._up = up
        self._grace = 0.0
        self._sources: dict[str, _Source] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def targets(self) -> Mapping[str, Sequence[Target]]:
        """What every source says now, by the source's name."""
        return {name: list(source.targets.values()) for name, source in self._sources.items()}

    async def configure(self, config: Config) -> None:
        """Take a new configuration; sources that stay keep what they know. Each is read once before this returns."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        known, self._sources = self._sources, self._readers(config)
        self._grace = config.discovery.grace
        self._up.clear()
        for name, source in self._sources.items():
            self._up[name] = False
            if name in known:
                source.targets, source.missing = known[name].targets, known[name].missing
        await asyncio.gather(*(self._refresh(name, source) for name, source in self._sources.items()))
        self._tasks = [
            self._guard.spawn(f"discovery:{name}", partial(self._follow, name, source))
            for name, source in self._sources.items()
        ]

    def _readers(self, config: Config) -> dict[str, _Source]:
        template = Template(config.defaults, {entry.kind: entry for entry in config.engines})
        sources: dict[str, _Source] = {}

        def add(name: str, refresh: float, read: Read) -> None:
            # Two may differ only in what a name does not show: a token, a network.
            alike = sum(known == name or known.startswith(f"{name} (") for known in sources)
            sources[f"{name} ({alike + 1})" if alike else name] = _Source(refresh, read)

        for files in config.discovery.file_sd:
            add(f"file_sd {' '.join(files.files)}", files.refresh, partial(read_files, files, template))
        for url in config.discovery.http_sd:
            add(f"http_sd {bare(url.url)}", url.refresh, partial(read_url, url, template, self._scraper))
        for host in config.discovery.docker:
            add(f"docker {bare(host.host)}", host.refresh, partial(read_docker, host, template))
        for pods in config.discovery.kubernetes:
            name = f"kubernetes {pods.namespace or 'own namespace'} {pods.selector}"
            add(name, pods.refresh, partial(read_kubernetes, pods, template))
        return sources

    async def _follow(self, name: str, source: _Source) -> None:
        while True:
            await self._clock.sleep(source.refresh)
            if await self._refresh(name, source):
                await self._changed()

    async def _refresh(self, name: str, source: _Source) -> bool:
        """Read one source; whether its targets changed."""
        before = dict(source.targets)
        try:
            found = await source.read()
        except SourceError as error:
            found = Found((), (str(error),), whole=False)
        named, problems = _one_each(found, source.targets)
        for problem in sorted(problems - source.problems):
            _log.warning("a source of targets is not read as a whole: %s", problem, extra={"source": name})
        source.problems = problems
        self._up[name] = not problems
        source.targets.update(named)
        self._drop_gone(source, named, whole=found.whole)
        return source.targets != before

    def _drop_gone(self, source: _Source, named: Mapping[str, Target], *, whole: bool) -> None:
        """Drop what was missing for the grace, and what another target has the address of by now."""
        now = self._clock.monotonic()
        taken = {target.url for target in named.values()}
        for name, target in list(source.targets.items()):
            if name in named:
                source.missing.pop(name, None)
                continue
            since = source.missing.setdefault(name, now) if whole else source.missing.get(name, now)
            if target.url in taken or (whole and now - since >= self._grace):
                del source.targets[name]
                source.missing.pop(name, None)


def _one_each(found: Found, known: Mapping[str, Target]) -> tuple[dict[str, Target], frozenset[str]]:
    """One target for each name, and all that is wrong; of two with one name the one that is watched already stays."""
    named: dict[str, Target] = {}
    problems = set(found.problems)
    for target in found.targets:
        first = named.setdefault(target.name, target)
        if first.url == target.url:
            continue
        keep = target if target.name in known and known[target.name].url == target.url else first
        other = first if keep is target else target
        problems.add(f"{target.name!r} is the name of {other.url} too, which is not watched; names must differ")
        named[target.name] = keep
    return named, frozenset(problems)
