"""The audit log: what was decided and done, one JSON object a line, for people's own log pipelines.

The journal is the truth; this is a copy that may be rotated, shipped and lost without harm.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

log = logging.getLogger("llm.remediator.audit")


class AuditLog:
    """Appends to `path`, opening it anew each time so that a rotated file is followed; without a path, nothing."""

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path is not None else None
        self._failed = False

    def write(self, event: str, *, at: float, target: str | None, **fields: Any) -> None:
        """One line. A line that cannot be written is logged once, until one can be again."""
        if self._path is None:
            return
        line = json.dumps({"at": at, "event": event, "target": target, **fields}, default=str, ensure_ascii=False)
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            if not self._failed:
                log.error("%s cannot be written: %s", self._path, error.strerror or error)  # noqa: TRY400
            self._failed = True
        else:
            self._failed = False
