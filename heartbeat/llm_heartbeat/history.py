"""Changes of the endpoints' answers: each is one log line, one count, and one entry in the bodies."""

from collections import deque
from dataclasses import dataclass
from typing import Any

from llm_heartbeat.faults import log


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `at` is Unix time."""

    at: float
    endpoint: str
    before: str
    after: str
    failed: tuple[str, ...]
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """For the bodies."""
        return {
            "at": round(self.at, 3),
            "endpoint": self.endpoint,
            "from": self.before,
            "to": self.after,
            "failed": list(self.failed),
            "reason": self.reason,
        }


class History:
    """The last `size` changes, newest last."""

    def __init__(self, size: int) -> None:
        self._changes: deque[Change] = deque(maxlen=max(size, 0))
        self._now: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._since: dict[str, float] = {}

    def note(self, at: float, endpoint: str, status: str, failed: tuple[str, ...], reason: str) -> Change | None:
        """Compare with the last status and reasons of that endpoint; a change is kept and logged.

        The first look is no change.
        """
        before = self._now.get(endpoint)
        if before == (status, failed):
            return None
        self._now[endpoint], self._since[endpoint] = (status, failed), at
        if before is None:
            return None
        change = Change(at, endpoint, before[0], status, failed, reason)
        self._changes.append(change)
        # Also the way back is a warning: where nobody configured logging, nothing less is shown.
        log.warning("%s: %s -> %s%s", endpoint, before[0], status, f": {reason}" if reason else "")
        return change

    def since(self, endpoint: str) -> float | None:
        """Unix time from which on that endpoint has answered as it does."""
        return self._since.get(endpoint)

    def entries(self) -> tuple[dict[str, Any], ...]:
        """All kept changes for a body."""
        return tuple(change.as_dict() for change in tuple(self._changes))
