"""What GPU readings testify. Pure.

Utilisation proves nothing: a spinning collective shows 95 % at idle power (vLLM issues 37729, PR 54638: 16 to 27 W where
computing drew 45 to 90 W). Power tells computing from spinning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llm_exporter.exposition import Samples

COMPUTING_SHARE = 0.6
"""Share of the power drawn while tokens moved from which on a GPU is taken to compute."""

LEARNING = 0.2


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU now; ratios 0 to 1, `xid` its last error number, 0 or None = none known."""

    name: str
    memory: float | None = None
    utilization: float | None = None
    watts: float | None = None
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Learnt:
    """Watts per GPU while tokens moved, averaged with a short memory; None until seen."""

    computing_watts: float | None = None


def from_dcgm(samples: Samples, gpus: Sequence[str]) -> tuple[GpuReading, ...]:
    """The target's GPUs of a DCGM exporter's page."""
    found: dict[str, GpuReading] = {}
    used, free = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
    memory: dict[str, dict[str, float]] = {}
    for name in (used, free, "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_XID_ERRORS"):
        for sample in samples.get(name):
            gpu, uuid = sample.labels.get("gpu", "0"), sample.labels.get("UUID", "")
            if gpus and gpu not in gpus and uuid not in gpus:
                continue
            reading = found.get(gpu, GpuReading(gpu))
            if name in (used, free):
                memory.setdefault(gpu, {})[name] = sample.value
                both = memory[gpu]
                if used in both and free in both and both[used] + both[free] > 0:
                    reading = replace(reading, memory=both[used] / (both[used] + both[free]))
            elif name == "DCGM_FI_DEV_GPU_UTIL":
                reading = replace(reading, utilization=sample.value / 100)
            elif name == "DCGM_FI_DEV_POWER_USAGE":
                reading = replace(reading, watts=sample.value)
            else:
                reading = replace(reading, xid=int(sample.value))
            found[gpu] = reading
    return tuple(found[gpu] for gpu in sorted(found))


def learn(learnt: Learnt, readings: Sequence[GpuReading], moving: bool) -> Learnt:
    """Remember what the GPUs draw while tokens move."""
    watts = _mean_watts(readings)
    if not moving or watts is None:
        return learnt
    known = learnt.computing_watts
    return Learnt(watts if known is None else known + LEARNING * (watts - known))


def power(readings: Sequence[GpuReading], learnt: Learnt, power_high: float | None) -> tuple[bool | None, str]:
    """Whether the GPUs draw what computing draws, and the words for it; None where nothing is known to compare with."""
    watts = _mean_watts(readings)
    if watts is None:
        return None, ""
    if power_high is not None:
        return watts >= power_high, f"{watts:.0f} W per GPU, {power_high:.0f} W is computing"
    if learnt.computing_watts is None:
        return None, f"{watts:.0f} W per GPU"
    return (
        watts >= COMPUTING_SHARE * learnt.computing_watts,
        f"{watts:.0f} W per GPU, {learnt.computing_watts:.0f} W while tokens moved",
    )


def hardware(readings: Sequence[GpuReading], fatal: Sequence[int]) -> str | None:
    """A fatal GPU error in words, or None."""
    bad = [f"GPU {reading.name}: Xid {reading.xid}" for reading in readings if reading.xid in fatal and reading.xid]
    return f"{', '.join(bad)}; a restart of the process does not mend it" if bad else None


def _mean_watts(readings: Sequence[GpuReading]) -> float | None:
    watts = [reading.watts for reading in readings if reading.watts is not None]
    return sum(watts) / len(watts) if watts else None
