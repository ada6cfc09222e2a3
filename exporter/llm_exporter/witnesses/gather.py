"""All second looks of one target, taken beside its own look."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from llm_exporter.engines import Page
from llm_exporter.exposition import read
from llm_exporter.judge import LoopEvidence, Witness
from llm_exporter.large_pages import off_loop
from llm_exporter.scrape import Access, Scraper

from . import gpu
from .config import WitnessConfig
from .container import ContainerReader, ContainerReading
from .heartbeat import PATH, loop_evidence
from .nvml import Nvml
from .silence import Silence

DCGM_SERIES = tuple(f"DCGM_FI_DEV_{name}" for name in ("FB_USED", "FB_FREE", "GPU_UTIL", "POWER_USAGE", "XID_ERRORS"))
ONE_CORE = 0.9
"""CPU seconds per second from which on a container burns CPU."""


@dataclass(frozen=True, slots=True)
class Testimony:
    """What the second looks say; everything may be missing."""

    witness: Witness = field(default_factory=Witness)
    gpus: tuple[gpu.GpuReading, ...] = ()
    loop: LoopEvidence | None = None


class Witnesses:
    """The second looks of one target. One task at a time may use it.

    Args:
        config: Which there are.
        scraper: The HTTP client, for a DCGM exporter and a heartbeat.
        monotonic: The clock, for CPU rates.
    """

    def __init__(self, config: WitnessConfig, scraper: Scraper, monotonic: Callable[[], float]) -> None:
        self.config = config
        self._scraper = scraper
        self._monotonic = monotonic
        self._nvml = Nvml()
        self._learnt = gpu.Learnt()
        self._container = ContainerReader(config.docker) if config.docker is not None else None
        self._cpu: tuple[float, float] | None = None
        self._no_dcgm = Silence(f"witness.dcgm ({config.dcgm.url if config.dcgm is not None else ''})")
        self._no_heartbeat = Silence(f"witness.heartbeat ({config.heartbeat})")

    async def testify(self, *, moving: bool, suspect: bool, timeout: float) -> Testimony:
        """Take all second looks, at the same time.

        Args:
            moving: Tokens moved at the last look: what the GPUs draw now is what computing draws.
            suspect: The last look was not well; only then is Docker asked for CPU usage, which is costly.
            timeout: Seconds for each.
        """
        (readings, xids), container, loop = await asyncio.gather(
            self._gpus(timeout), self._look_at_container(suspect), self._heartbeat(timeout)
        )
        self._learnt = gpu.learn(self._learnt, readings, moving)
        dcgm, nvml = self.config.dcgm, self.config.nvml
        threshold = dcgm.power_high if dcgm is not None else nvml.power_high if nvml is not None else None
        high, words = gpu.power(readings, self._learnt, threshold)
        return Testimony(
            Witness(
                power_high=high,
                power_words=words,
                cpu_high=self._cpu_high(container),
                container=container.status if container is not None else None,
                container_started=container.started if container is not None else None,
                oom_killed=container.oom_killed if container is not None else None,
                hardware=gpu.hardware(readings, xids),
            ),
            readings,
            loop,
        )

    async def _gpus(self, timeout: float) -> tuple[tuple[gpu.GpuReading, ...], tuple[int, ...]]:
        dcgm, nvml = self.config.dcgm, self.config.nvml
        if dcgm is not None:
            page = await self._scraper.request("GET", Access(dcgm.url), "", timeout)
            if page.status != 200:
                self._no_dcgm.because(str(page.status or page.error))
                return (), dcgm.fatal_xids
            samples = await off_loop(page.body, lambda: read(page.body, DCGM_SERIES))
            readings = gpu.from_dcgm(samples, dcgm.gpus)
            if readings:
                self._no_dcgm.ends()
            else:
                self._no_dcgm.because(
                    f"its page shows none of the GPUs {list(dcgm.gpus)}" if dcgm.gpus else "no GPU on its page"
                )
            return readings, dcgm.fatal_xids
        if nvml is not None:
            return await asyncio.to_thread(self._nvml.read, nvml.gpus), ()
        return (), ()

    async def _look_at_container(self, suspect: bool) -> ContainerReading | None:
        if self._container is None:
            return None
        return await asyncio.to_thread(self._container.read, suspect)

    async def _heartbeat(self, timeout: float) -> LoopEvidence | None:
        if self.config.heartbeat is None:
            return None
        page: Page = await self._scraper.request("GET", Access(self.config.heartbeat), PATH, timeout)
        evidence = loop_evidence(page)
        if evidence is None:
            self._no_heartbeat.because(f"{PATH} is no heartbeat's: {page.status or page.error}")
        else:
            self._no_heartbeat.ends()
        return evidence

    def _cpu_high(self, container: ContainerReading | None) -> bool | None:
        before, now = self._cpu, self._monotonic()
        if container is None or container.cpu_seconds is None:
            self._cpu = None
            return None
        self._cpu = (now, container.cpu_seconds)
        if before is None or now - before[0] < 1:
            return None
        return (container.cpu_seconds - before[1]) / (now - before[0]) >= ONE_CORE
