"""Points where a test lets the process die as kill -9 would: only with `STUCKPROOF_FAULT` in the environment."""

from __future__ import annotations

import os
from typing import Final

POINTS: Final = (
    "before_intent",
    "after_intent",
    "after_diagnostics",
    "after_recheck",
    "after_acting",
    "during_call",
    "after_call",
    "after_starting",
    "after_start",
    "after_acted",
    "before_close",
    "after_close",
)


def point(name: str) -> None:
    """Die here if the test says so; costs one look into the environment otherwise."""
    if os.environ.get("STUCKPROOF_FAULT") == name:
        os._exit(137)


def armed(name: str) -> bool:
    """Whether a test wants the process to die at this point."""
    return os.environ.get("STUCKPROOF_FAULT") == name
