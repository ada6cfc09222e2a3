"""Limits on readiness: off until given, passed at the limit, and over until clearly below it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from llm_exporter import checks
from llm_exporter.judge import LaneEvidence
from llm_exporter.snapshot import Checks, Gpu, Snapshot
from llm_exporter.target_config import Limits, Target, TargetOptions


def seen(limits: Limits, *, kv: float | None = None, gpu: float | None = None) -> Snapshot:
    target = Target("t", "http://t", options=TargetOptions(ready_limits=limits))
    lanes = (LaneEvidence("0", {"steps": 1.0}, 1.0, 0.0, kv=kv),)
    return Snapshot(target, 5.0, lanes=lanes, gpu=None if gpu is None else Gpu(memory=gpu))


def over(limits: Limits, name: str, values: Sequence[float | None]) -> list[bool]:
    before, told = Checks(), []
    for value in values:
        before = checks.of(seen(limits, **{name: value}), before)
        told.append(any(before.limits.values()))
    return told


@pytest.mark.parametrize(
    ("limits", "name", "values", "told"),
    [
        (Limits(), "kv", [1.0], [False]),
        (Limits(kv=0.8), "kv", [0.79, 0.8, 0.73, 0.71, 0.75], [False, True, True, False, False]),
        (Limits(kv=0.8, recover=0.5), "kv", [0.8, 0.41, 0.39], [True, True, False]),
        (Limits(kv=0.8, recover=1), "kv", [0.8, 0.79], [True, False]),
        (Limits(gpu_memory=0.95), "gpu", [0.94, 0.95, 0.9, 0.85], [False, True, True, False]),
        (Limits(gpu_memory=0.95), "gpu", [0.95, None], [True, False]),
        (Limits(gpu_memory=0.95), "kv", [1.0], [False]),
    ],
)
def test_a_limit_holds_until_its_value_is_clearly_below(
    limits: Limits, name: str, values: Sequence[float | None], told: list[bool]
) -> None:
    assert over(limits, name, values) == told
