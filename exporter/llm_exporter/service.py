"""One running exporter: configuration, discoveries, fleet and web server put together, reloaded and stopped."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from llm_common import web as common_web
from llm_common.errors import ConfigError
from llm_common.guard import Guard
from llm_exporter.clock import Clock, SystemClock
from llm_exporter.config import Config
from llm_exporter.discovery import Discoveries
from llm_exporter.fleet import Fleet, merged
from llm_exporter.loop_lag import LoopLag
from llm_exporter.reload_state import ReloadState
from llm_exporter.scrape import Scraper
from llm_exporter.shard import Shard
from llm_exporter.web import Web

_log = logging.getLogger("llm.service")


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says about serving."""

    listen: Sequence[str] = (":10140",)
    web_config_file: str | None = None
    external_url: str = ""
    enable_lifecycle: bool = False
    shard: Shard = field(default_factory=Shard)
    sends_canaries: bool = True


class Service:
    """An exporter that serves until it is stopped.

    Args:
        read: Reads the configuration; raises ``ConfigError``. Called at start and at every reload.
        options: The command line.
        clock: Time.
    """

    def __init__(self, read: Callable[[], Config], options: Options, clock: Clock | None = None) -> None:
        self._read = read
        self._options = options
        self._clock = clock or SystemClock()
        config = self._read()
        self.guard = Guard()
        self.lag = LoopLag(self._clock)
        self.state = ReloadState(config, config.hash, self._clock.unix())
        self._scraper = Scraper(config.max_requests_per_host)
        self.fleet = Fleet(self._scraper, self._clock, self.guard, self.lag, sends_canaries=options.sends_canaries)
        self._discoveries = Discoveries(self._scraper, self._clock, self.guard, self._found, self.state.discovery_up)
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Begin to watch; returns at once."""
        self.guard.spawn("loop-lag", self.lag.run)
        async with self._changing:
            await self._discoveries.configure(self.state.config)
            await self._apply()

    async def _found(self) -> None:
        """A discovery has news."""
        async with self._changing:
            await self._apply()

    async def _apply(self) -> None:
        targets = merged(self.state.config.targets, self._discoveries.targets())
        await self.fleet.set_targets(target for target in targets if self._options.shard.mine(target.name))

    async def reload(self) -> None:
        """Read the configuration anew; ``ConfigError`` if it is wrong, then the old one stays."""
        async with self._changing:
            try:
                config, digest = await asyncio.to_thread(self._fresh)
            except ConfigError as error:
                self.state.successful = False
                _log.error("the configuration was not reloaded, the old one stays: %s", error)
                raise
            self.state.config, self.state.hash = config, digest
            self.state.successful, self.state.succeeded_at = True, self._clock.unix()
            self._scraper.reconfigure(config.max_requests_per_host)
            await self._discoveries.configure(config)
            await self._apply()
        _log.info("configuration reloaded", extra={"hash": digest, "targets": len(self.fleet)})

    def _fresh(self) -> tuple[Config, str]:
        """Thousands of targets take longer to read and to hash than the event loop may be held."""
        config = self._read()
        return config, config.hash

    async def stop(self) -> None:
        """Stop watching and close every connection."""
        await self.fleet.stop()
        await self.guard.stop()
        await self._scraper.close()


def calm_collector() -> None:
    """Let the collector of cycles walk through everything less often than Python's thresholds make it.

    Every look replaces what is known of a target, so a large fleet looks like garbage in the making: at 5,000 targets all of
    it was walked through every three seconds, a third of a second each time. Looks that succeed leave no cycles; those that
    fail do, and the young generations, which cost milliseconds, take most of them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 10, 200)


async def serve(read: Callable[[], Config], options: Options) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reloads."""
    service = Service(read, options)
    calm_collector()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    reloads: set[asyncio.Task[None]] = set()

    async def reload_quietly() -> None:
        try:
            await service.reload()
        except ConfigError:
            return  # logged and shown in metrics; the old configuration stays

    def on_hangup() -> None:
        task = asyncio.create_task(reload_quietly())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, on_hangup)
    reload = service.reload if options.enable_lifecycle else None
    web = Web(service.fleet, service.guard, service.lag, SystemClock(), service.state, reload, options.external_url)
    runner = await common_web.serve(web.app(), options.listen, options.web_config_file)
    _log.info("serving", extra={"listen": ",".join(options.listen), "targets": len(service.state.config.targets)})
    try:
        await service.start()
        await stop.wait()
    finally:
        await service.stop()
        await runner.cleanup()
