"""Who blocks the loop: the stack of its thread, seen from another thread."""

import sys
import sysconfig
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

_STACK_FRAMES = 20
_STDLIB = tuple(
    {str(Path(sysconfig.get_paths()[key]).resolve()) for key in ("stdlib", "platstdlib")}
    | {sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib")}
)


@dataclass(frozen=True, slots=True)
class Culprit:
    """The innermost frame outside the standard library, and the stack around it, innermost last."""

    file: str
    line: int
    function: str
    stack: tuple[str, ...]
    at: float
    blocked_seconds: float

    @property
    def label(self) -> str:
        """Short and stable over line changes: the metric's label value."""
        return f"{Path(self.file).stem}.{self.function}"

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})"

    def as_dict(self) -> dict[str, Any]:
        """For the body of `/healthz/live`. `at` is Unix time."""
        return {
            "file": self.file,
            "line": self.line,
            "function": self.function,
            "stack": list(self.stack),
            "at": self.at,
            "blocked_seconds": round(self.blocked_seconds, 3),
        }


def capture(thread_id: int, at: float, blocked_seconds: float) -> Culprit | None:
    """The culprit in that thread now; None if the thread has ended.

    A C function has no frame of its own: the frame that called it is named.
    """
    frame = sys._current_frames().get(thread_id)
    if frame is None:
        return None
    frames = [(f.f_code.co_filename, line, _name(f)) for f, line in traceback.walk_stack(frame)]
    file, line, function = _innermost_of_theirs(frames)
    stack = tuple(f"{name} ({path}:{number})" for path, number, name in reversed(frames[:_STACK_FRAMES]))
    return Culprit(file, line, function, stack, at, blocked_seconds)


def _innermost_of_theirs(frames: Iterable[tuple[str, int, str]]) -> tuple[str, int, str]:
    frames = list(frames)
    return next((frame for frame in frames if not _of_python(frame[0])), frames[0])


def _of_python(path: str) -> bool:
    if path.startswith("<frozen"):
        return True
    return path.startswith(_STDLIB) and "site-packages" not in path and "dist-packages" not in path


def _name(frame: FrameType) -> str:
    return frame.f_code.co_qualname
