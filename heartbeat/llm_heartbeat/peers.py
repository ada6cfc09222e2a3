"""Several processes of one server (API servers, workers): each writes what it knows, the side port answers with the worst.

A probe on the main port reaches an arbitrary process, and several cannot share one side port. The files lie in
`LLM_HEARTBEAT_STATE_DIR` or `PROMETHEUS_MULTIPROC_DIR`. Monotonic time is the machine's on Linux, hence comparable.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EVERY = 1.0  # seconds between two snapshots
_LATE = 0.5  # a heartbeat is due ten times a second
_RENEWED = 5 * EVERY
_PATTERN = "llm_heartbeat_*.json"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one process wrote last, at `written`. `due` was its next heartbeat then; None where no loop runs."""

    pid: int
    written: float
    due: float | None
    startup: str
    reason: str
    ready: bool
    ready_status: str
    failed: list[str]
    lag: float
    culprit: dict[str, Any] | None = None
    degraded: list[str] = field(default_factory=list)

    def blocked(self, now: float) -> float:
        """Age of the block that its loop is in, seconds; 0 if the loop turned when this was written.

        A file that is not renewed is a process that does not run at all (stopped, or a C call holds its GIL).
        """
        if self.due is None or (self.written - self.due < _LATE and now - self.written < _RENEWED):
            return 0.0
        return max(0.0, now - self.due)

    def write(self, directory: Path) -> None:
        """Atomic. OSError where the directory is gone."""
        path = directory / f"llm_heartbeat_{self.pid}.json"
        text = json.dumps({name: getattr(self, name) for name in self.__slots__})
        scratch = path.with_suffix(".new")
        scratch.write_text(text)
        scratch.replace(path)


def directory(configured: str) -> Path | None:
    """Where the processes meet, read anew each time: vLLM sets the variable while it starts."""
    path = configured or os.environ.get("PROMETHEUS_MULTIPROC_DIR", "")
    return Path(path) if path and Path(path).is_dir() else None


def others(where: Path) -> list[Snapshot]:
    """The living other processes. The files of dead ones, and their live gauges, are removed."""
    found = []
    for path in sorted(where.glob(_PATTERN)):
        try:
            snapshot = Snapshot(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            continue  # being replaced, or of another version: not ours to judge
        if snapshot.pid == os.getpid():
            continue
        if _alive(snapshot.pid):
            found.append(snapshot)
        else:
            _bury(where, path, snapshot.pid)
    return found


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _bury(where: Path, path: Path, pid: int) -> None:
    """vLLM leaves `gauge_live*_<pid>.db` of dead API servers; a maximum over them would never fall again."""
    path.unlink(missing_ok=True)
    for stale in where.glob(f"gauge_live*_{pid}.db"):
        stale.unlink(missing_ok=True)
