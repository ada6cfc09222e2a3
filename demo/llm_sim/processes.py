"""Names, parentage and pids of the processes, so that a person or a test can find the one to stop."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import tempfile
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def set_name(name: str) -> None:
    """Show ``name`` (15 bytes of it) in ps, as vLLM's ``VLLM::EngineCore`` does."""
    Path("/proc/self/comm").write_text(name[:15])


def die_with_parent(parent: int) -> None:
    """Be killed, even while stopped, when the API process ends: no test leaves an engine behind."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        raise SystemExit("the API process ended before its engine started")


def default_pids_file(port: int) -> Path:
    """Where the pids are written if nothing else was asked for."""
    return Path(tempfile.gettempdir()) / f"llm-sim-{port}.pids.json"


def write_pids(path: Path, api: int, engines: list[int]) -> None:
    """Write ``{"api": pid, "engines": [pid, …]}``, one engine per rank; readers see all of it or nothing."""
    unfinished = path.with_suffix(f".{api}.new")
    unfinished.write_text(json.dumps({"api": api, "engines": engines}))
    unfinished.replace(path)
