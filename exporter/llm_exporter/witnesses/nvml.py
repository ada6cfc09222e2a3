"""This machine's GPUs through NVIDIA's management library; needs the extra ``stuckproof[gpu]``."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Sequence
from typing import Any

from .gpu import GpuReading

_log = logging.getLogger("llm.witness")


class Nvml:
    """The library, loaded once; without it, or without a GPU, there is no testimony, and the log says so once."""

    def __init__(self) -> None:
        self._library: Any = None
        self._told = False

    def read(self, gpus: Sequence[str]) -> tuple[GpuReading, ...]:
        """The GPUs whose index or UUID is named (all if none is). Blocks for some milliseconds: call it in a thread."""
        library = self._loaded()
        if library is None:
            return ()
        found: list[GpuReading] = []
        try:
            for index in range(library.nvmlDeviceGetCount()):
                handle = library.nvmlDeviceGetHandleByIndex(index)
                uuid = library.nvmlDeviceGetUUID(handle)
                uuid = uuid.decode() if isinstance(uuid, bytes) else str(uuid)
                if gpus and str(index) not in gpus and uuid not in gpus:
                    continue
                memory = library.nvmlDeviceGetMemoryInfo(handle)
                found.append(
                    GpuReading(
                        name=str(index),
                        memory=memory.used / memory.total if memory.total else None,
                        utilization=library.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
                        watts=library.nvmlDeviceGetPowerUsage(handle) / 1000,
                    )
                )
        except library.NVMLError as error:
            self._tell(f"NVML does not answer: {error}")
            return ()
        return tuple(found)

    def _loaded(self) -> Any:
        if self._library is None and not self._told:
            try:
                library = importlib.import_module("pynvml")
            except ImportError:
                self._tell("witness.nvml needs pip install 'stuckproof[gpu]'")
                return None
            try:
                library.nvmlInit()
            except library.NVMLError as error:
                self._tell(f"NVML cannot be used on this machine: {error}")
                return None
            self._library = library
        return self._library

    def _tell(self, words: str) -> None:
        if not self._told:
            self._told = True
            _log.warning("%s", words)
