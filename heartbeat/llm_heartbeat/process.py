"""A process as /proc shows it. Its start tells it from a later process of the same number, and from a dead one."""

import os
import time
from pathlib import Path


def start_ticks(pid: int) -> int | None:
    """When that process began, in clock ticks since boot; None if none runs (a zombie does not), or without /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()
    return None if state in ("Z", "X") else int(fields[18])


def runs(pid: int, began: int | None) -> bool:
    """Whether the process that began then still runs; without /proc, whether any of that number does."""
    if began is not None:
        return start_ticks(pid) == began
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def age() -> float:
    """Seconds since this process began; 0 without /proc."""
    ticks = start_ticks(os.getpid())
    if ticks is None:
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
