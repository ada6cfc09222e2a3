"""Several processes of one server (API servers, workers): each writes what it knows, the side port answers with the worst.

A probe on the main port reaches an arbitrary process, and several cannot share one side port. The files lie in
`LLM_HEARTBEAT_STATE_DIR` or `PROMETHEUS_MULTIPROC_DIR`. Monotonic time is the machine's on Linux, hence comparable.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llm_heartbeat import health, process
from llm_heartbeat.state import State
from llm_heartbeat.view import view_of

EVERY = 1.0  # seconds between two snapshots
RENEWED = 5 * EVERY  # who has not written for so long is silent
_LATE = 0.5  # seconds overdue from which on a loop is blocked
_PATTERN = "llm_heartbeat_*.json"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one process, which `began` then, wrote last. `due` was its next heartbeat then; None where no loop runs."""

    pid: int
    began: int | None
    written: float
    due: float | None
    startup: str
    startup_reason: str
    ready: bool
    ready_status: str
    ready_reason: str
    lag: float
    failed: list[str] = field(default_factory=list)
    degraded: list[str] = field(default_factory=list)
    culprit: dict[str, Any] | None = None

    @classmethod
    def of(cls, state: State) -> "Snapshot":
        """This process now."""
        view = view_of(state)
        startup, ready = health.startup(view), health.ready(view)
        return cls(
            pid=os.getpid(),
            began=process.start_ticks(os.getpid()),
            written=state.clock(),
            due=state.beats.due if state.beats else None,
            startup=startup.status,
            startup_reason=startup.reason,
            ready=ready.good,
            ready_status=ready.status,
            ready_reason=ready.reason,
            lag=view.lag,
            failed=list(ready.failed),
            degraded=list(ready.degraded),
            culprit=view.culprit,
        )

    def silent(self, now: float) -> bool:
        """A file that is not renewed is a process that does not run at all (stopped, or a C call holds its GIL)."""
        return now - self.written >= RENEWED

    def blocked(self, now: float) -> float:
        """Age of the block that its loop is in, seconds; 0 if the loop turned when this was written."""
        if self.due is None or (self.written - self.due < _LATE and not self.silent(now)):
            return 0.0
        return max(0.0, now - self.due)

    def write(self, directory: Path) -> None:
        """Atomic. OSError where it cannot be written; then nothing is left that would look like a silent process."""
        path = file_of(directory, self.pid)
        text = json.dumps({name: getattr(self, name) for name in self.__slots__})
        scratch = path.with_suffix(".new")
        try:
            scratch.write_text(text)
            scratch.replace(path)
        except OSError:
            for left in (path, scratch):
                with suppress(OSError):
                    left.unlink()
            raise


def directory(configured: str) -> Path | None:
    """Where the processes meet, read anew each time: vLLM sets the variable while it starts."""
    path = configured or os.environ.get("PROMETHEUS_MULTIPROC_DIR", "")
    return Path(path) if path and Path(path).is_dir() else None


def file_of(directory: Path, pid: int) -> Path:
    """Where that process writes."""
    return directory / f"llm_heartbeat_{pid}.json"


def others(where: Path) -> list[Snapshot]:
    """The living other processes."""
    return [one for one in _read(where) if one.pid != os.getpid() and process.runs(one.pid, one.began)]


def bury_dead(where: Path) -> None:
    """Remove the files of the dead, and their live gauges: a maximum over those would never fall again.

    vLLM leaves `gauge_live*_<pid>.db` of API servers that died.
    """
    for one in _read(where):
        if not process.runs(one.pid, one.began):
            file_of(where, one.pid).unlink(missing_ok=True)
            if process.start_ticks(one.pid) is None:  # else they are a later process' by now
                for stale in where.glob(f"gauge_live*_{one.pid}.db"):
                    stale.unlink(missing_ok=True)


def _read(where: Path) -> Iterator[Snapshot]:
    for path in sorted(where.glob(_PATTERN)):
        with suppress(OSError, ValueError, TypeError):  # being replaced, or of another version: not ours to judge
            yield Snapshot(**json.loads(path.read_text()))
