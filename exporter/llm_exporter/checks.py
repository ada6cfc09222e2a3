"""The yes or no for orchestrators: live, ready, startup. Liveness is about the process itself and nothing else."""

from __future__ import annotations

from llm_exporter.judge import State
from llm_exporter.snapshot import READY_IN, STARTED_IN, Checks, Snapshot

FAIL_OPEN_SHARE = 0.2


def of(snapshot: Snapshot, before: Checks) -> Checks:
    """The checks of a snapshot; a limit that was passed stays passed until the value is clearly below it."""
    limits = snapshot.target.options.ready_limits
    gpu = snapshot.gpu.memory if snapshot.gpu is not None else None
    measured = (
        ("queue", snapshot.waiting, limits.queue),
        ("kv", snapshot.kv, limits.kv),
        ("gpu_memory", gpu, limits.gpu_memory),
    )
    over = {
        name: value is not None and value >= (limit * limits.recover if before.limits.get(name) else limit)
        for name, value, limit in measured
        if limit is not None
    }
    state = snapshot.verdict.state
    return Checks(state is not State.STUCK, state in STARTED_IN, state in READY_IN, over)


def fail_open(failing: int, targets: int) -> bool:
    """Whether so many targets fail ``live`` that a common cause is likelier than theirs: then none is to be killed."""
    return failing > max(1, FAIL_OPEN_SHARE * targets)
