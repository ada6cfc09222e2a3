"""Where queue depth, KV cache and GPU memory are read from. Each source has a thread: NVML may hang on a broken GPU."""

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from llm_heartbeat.faults import Faults

Read = Callable[[], float | None]

_QUEUE = ("vllm:num_requests_waiting",)
_KV = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")


class Source:
    """The last value of `read`, asked every `every` seconds in a thread. A value that is too old is None."""

    def __init__(self, name: str, read: Read, every: float, faults: Faults) -> None:
        self.name = name
        self._read = read
        self._every = every
        self._faults = faults
        self._last: tuple[float, float | None] | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, once."""
        if self._thread is None or self._stop.is_set():
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._run, args=(self._stop,), name=f"llm-heartbeat-{self.name}", daemon=True
            )
            self._thread.start()

    def after_fork(self) -> None:
        """In a forked child: the thread is not there any more."""
        self._thread = None

    def stop(self) -> None:
        """Ask the thread to end; it is not waited for, since `read` may hang."""
        self._stop.set()

    def value(self, now: float) -> float | None:
        """The value, if it is younger than three pauses and 5 s."""
        if self._last is None or now - self._last[0] > 3 * self._every + 5:
            return None
        return self._last[1]

    def _run(self, stop: threading.Event) -> None:
        while True:
            value = None
            with self._faults.passed_by(f"source_{self.name}"):
                value = _number(self._read())
            self._last = (time.monotonic(), value)
            if stop.wait(self._every):
                return


def _number(found: float | None) -> float | None:
    """TypeError or ValueError for what no limit can be compared with; NaN is unknown."""
    value = None if found is None else float(found)
    return None if value is None or math.isnan(value) else value


def vllm_queue() -> float | None:
    """Waiting requests of all engines, from vLLM's own gauges in this server; None outside vLLM."""
    values = _samples(_QUEUE)
    return sum(values) if values else None


def vllm_kv() -> float | None:
    """KV cache in use, of the fullest engine."""
    return max(_samples(_KV), default=None)


def _samples(names: tuple[str, ...]) -> list[float]:
    """Values of the first family that is there."""
    from prometheus_client import REGISTRY
    from prometheus_client.multiprocess import MultiProcessCollector

    shared = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if shared:
        # The gauges' files alone: with the histograms of four servers a look takes 70 ms of the GIL, without them 0.1 ms.
        gauges = [str(path) for path in Path(shared).glob("gauge_*.db")]
        families = list(MultiProcessCollector.merge(gauges))  # type: ignore[no-untyped-call]
    else:
        families = list(REGISTRY.restricted_registry(list(names)).collect())
    found: dict[str, list[float]] = {}
    for family in families:
        for sample in family.samples:
            if sample.name in names:
                found.setdefault(sample.name, []).append(sample.value)
    return next((found[name] for name in names if name in found), [])


def gpu_memory() -> float | None:
    """Memory in use of the fullest GPU, 0 to 1: NVIDIA through `pynvml` if it is there, AMD through sysfs.

    Never through torch: asking it would open a CUDA context in the API process.
    """
    return max([*_nvidia(), *_amd()], default=None)


def _nvidia() -> Iterable[float]:
    try:
        import pynvml
    except ImportError:
        pynvml = sys.modules.get("vllm.third_party.pynvml")
    if pynvml is None:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        infos = [pynvml.nvmlDeviceGetMemoryInfo(handle) for handle in handles]
        return [info.used / info.total for info in infos if info.total]
    finally:
        pynvml.nvmlShutdown()


def _amd(root: Path = Path("/sys/class/drm")) -> Iterable[float]:
    ratios = []
    for total in root.glob("card*/device/mem_info_vram_total"):
        size = int(total.read_text())
        if size:
            ratios.append(int(total.with_name("mem_info_vram_used").read_text()) / size)
    return ratios
