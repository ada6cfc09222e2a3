"""Queue, KV cache and GPU memory: vLLM's own gauges, NVML, sysfs, and what hangs or raises."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, Gauge

from llm_heartbeat import sources
from llm_heartbeat.faults import Faults

HEARTBEAT = Path(__file__).resolve().parents[2] / "heartbeat"


def test_vllms_gauges_are_read_from_its_registry() -> None:
    assert sources.vllm_queue() is None
    waiting = Gauge("vllm:num_requests_waiting", "x", ["engine"])
    old = Gauge("vllm:gpu_cache_usage_perc", "x", ["engine"])
    try:
        waiting.labels("0").set(3)
        waiting.labels("1").set(4)
        old.labels("0").set(0.25)
        assert sources.vllm_queue() == 7
        assert sources.vllm_kv() == 0.25
        new = Gauge("vllm:kv_cache_usage_perc", "x", ["engine"])
        new.labels("0").set(0.5)
        new.labels("1").set(0.75)
        assert sources.vllm_kv() == 0.75
        REGISTRY.unregister(new)
    finally:
        REGISTRY.unregister(waiting)
        REGISTRY.unregister(old)


def test_vllms_gauges_of_several_api_servers(tmp_path: Path) -> None:
    write = (
        "from prometheus_client import Gauge\n"
        "g = Gauge('vllm:num_requests_waiting', 'x', ['engine'], multiprocess_mode='mostrecent')\n"
        "g.labels('0').set({value})\n"
    )
    environ = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PYTHONPATH": str(HEARTBEAT)}
    for value in (9, 5):
        subprocess.run([sys.executable, "-c", write.format(value=value)], env=environ, check=True)
    # vLLM's histograms are hundreds of kilobytes a server: to read them every second would cost its loop a tenth of the GIL.
    (tmp_path / "histogram_1.db").write_bytes(b"not to be read")
    read = "from llm_heartbeat import sources; print(sources.vllm_queue())"
    found = subprocess.run([sys.executable, "-c", read], env=environ, check=True, capture_output=True, text=True)
    assert found.stdout == "5.0\n"


def test_nvidia_memory_of_the_fullest_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU here: a module with the four calls that we use stands for NVML."""
    ended = []
    fake = types.ModuleType("pynvml")
    fake.NVMLError = type("NVMLError", (Exception,), {})  # type: ignore[attr-defined]
    fake.nvmlInit = lambda: None  # type: ignore[attr-defined]
    fake.nvmlShutdown = lambda: ended.append(1)  # type: ignore[attr-defined]
    fake.nvmlDeviceGetCount = lambda: 2  # type: ignore[attr-defined]
    fake.nvmlDeviceGetHandleByIndex = lambda n: n  # type: ignore[attr-defined]
    fake.nvmlDeviceGetMemoryInfo = lambda n: types.SimpleNamespace(used=[20, 72][n], total=80)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    assert sources.gpu_memory() == 0.9
    assert ended == [1]


def test_no_gpu_is_unknown() -> None:
    assert sources.gpu_memory() is None


def test_amd_memory_from_sysfs(tmp_path: Path) -> None:
    for card, used in (("card0", 16), ("card1", 48)):
        device = tmp_path / card / "device"
        device.mkdir(parents=True)
        (device / "mem_info_vram_total").write_text("64\n")
        (device / "mem_info_vram_used").write_text(f"{used}\n")
    assert sorted(sources._amd(tmp_path)) == [0.25, 0.75]


def test_a_source_that_hangs_becomes_unknown_and_blocks_nobody() -> None:
    gate = threading.Event()
    values = iter([5.0])

    def read() -> float | None:
        found = next(values, None)
        if found is None:
            gate.wait(30)
        return found

    source = sources.Source("queue", read, 0.01, Faults())
    source.start()
    end = time.monotonic() + 10
    while source.value(time.monotonic()) != 5.0 and time.monotonic() < end:
        time.sleep(0.01)
    assert source.value(time.monotonic()) == 5.0
    assert source.value(time.monotonic() + 6) is None
    source.stop()
    gate.set()


def test_a_source_that_raises_is_unknown() -> None:
    faults = Faults()

    def read() -> float:
        raise RuntimeError("NVML: GPU is lost")

    source = sources.Source("gpu", read, 0.01, faults)
    source.start()
    end = time.monotonic() + 10
    while not faults.counts["source_gpu"] and time.monotonic() < end:
        time.sleep(0.01)
    source.stop()
    assert faults.counts["source_gpu"] >= 1
    assert source.value(time.monotonic()) is None
