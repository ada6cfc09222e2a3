"""Targets from elsewhere: files and URLs in Prometheus' own format, and labelled containers.

A source that cannot be read keeps what it said last. A target that a source does not name any more is dropped after
a grace, so that a container that is being replaced keeps its history.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from llm_common.errors import ConfigError
from llm_common.guard import Guard
from llm_exporter.clock import Clock
from llm_exporter.config import Config
from llm_exporter.discovery_kubernetes import read_kubernetes
from llm_exporter.discovery_sources import SourceError, read_docker, read_files, read_url
from llm_exporter.scrape import Scraper
from llm_exporter.target_config import Target

_log = logging.getLogger("llm.discovery")
Read = Callable[[], Awaitable[Sequence[Target]]]


@dataclass(slots=True)
class _Source:
    refresh: float
    read: Read
    targets: dict[str, Target] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)


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
            if name in known:
                source.targets, source.seen = known[name].targets, known[name].seen
        await asyncio.gather(*(self._refresh(name, source) for name, source in self._sources.items()))
        self._tasks = [
            self._guard.spawn(f"discovery:{name}", partial(self._follow, name, source))
            for name, source in self._sources.items()
        ]

    def _readers(self, config: Config) -> dict[str, _Source]:
        defaults, sources = config.defaults, {}
        for entry in config.discovery.file_sd:
            sources[f"file_sd {' '.join(entry.files)}"] = _Source(entry.refresh, partial(read_files, entry, defaults))
        for url in config.discovery.http_sd:
            name = url.url.rpartition("@")[2]
            sources[f"http_sd {name}"] = _Source(url.refresh, partial(read_url, url, defaults, self._scraper))
        for host in config.discovery.docker:
            sources[f"docker {host.host}"] = _Source(host.refresh, partial(read_docker, host, defaults))
        for pods in config.discovery.kubernetes:
            name = f"kubernetes {pods.namespace or 'own namespace'} {pods.selector}"
            sources[name] = _Source(pods.refresh, partial(read_kubernetes, pods, defaults))
        return sources

    async def _follow(self, name: str, source: _Source) -> None:
        while True:
            await self._clock.sleep(source.refresh)
            if await self._refresh(name, source):
                await self._changed()

    async def _refresh(self, name: str, source: _Source) -> bool:
        """Read one source; whether its targets changed."""
        before = dict(source.targets)
        now = self._clock.monotonic()
        try:
            found = await source.read()
        except (SourceError, ConfigError) as error:
            self._up[name] = False
            _log.warning("a source of targets cannot be read, what it said last stays: %s", error, extra={"source": name})
            return False
        self._up[name] = True
        for target in found:
            source.targets[target.name] = target
            source.seen[target.name] = now
        for gone in [known for known, at in source.seen.items() if now - at > self._grace]:
            del source.targets[gone], source.seen[gone]
        return source.targets != before
