"""Notices when somebody sets the clock forward: waiting times stored as wall times would end early."""

from __future__ import annotations

SUSPICIOUS = 60.0
LONGEST = 6 * 3600.0


class ClockWatch:
    """Compares wall time with a monotonic one that counts suspended time too."""

    def __init__(self) -> None:
        self._offset: float | None = None
        self._until = 0.0

    def distrust_until(self, wall: float, monotonic: float) -> float:
        """Wall time until which waiting times are not trusted: as long as the clock jumped, at most six hours."""
        offset = wall - monotonic
        if self._offset is not None and offset - self._offset > SUSPICIOUS:
            jump = offset - self._offset
            self._until = max(self._until, wall + min(jump, LONGEST))
        if self._offset is None or abs(offset - self._offset) > SUSPICIOUS:
            self._offset = offset
        return self._until
