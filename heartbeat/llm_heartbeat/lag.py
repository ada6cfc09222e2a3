"""How late the event loop is: pure bookkeeping, time is given.

Times are monotonic seconds. The loop's thread calls `Beats.beat`; the watchdog's thread reads everything else.
"""

from collections import deque
from dataclasses import dataclass, field
from threading import Lock


class LagWindow:
    """The largest delay of the last `span` seconds. Only delays that may still become the largest are kept."""

    def __init__(self, span: float) -> None:
        self._span = span
        self._peaks: deque[tuple[float, float]] = deque()  # times rise, delays fall
        self._lock = Lock()

    def add(self, now: float, delay: float) -> None:
        """Note a delay that ended at `now`."""
        with self._lock:
            while self._peaks and self._peaks[-1][1] <= delay:
                self._peaks.pop()
            self._peaks.append((now, delay))
            self._forget(now)

    def largest(self, now: float) -> float:
        """Seconds; 0 if nothing was noted within the span."""
        with self._lock:
            self._forget(now)
            return self._peaks[0][1] if self._peaks else 0.0

    def latest(self, after: float) -> float:
        """The largest delay that ended after that time; 0 if there was none."""
        with self._lock:
            return max((delay for time, delay in self._peaks if time > after), default=0.0)

    def _forget(self, now: float) -> None:
        while self._peaks and self._peaks[0][0] < now - self._span:
            self._peaks.popleft()


@dataclass(slots=True)
class Beats:
    """The loop's own trace: how many beats there were, and when the next one is due."""

    interval: float
    due: float
    blocked_after: float
    count: int = 0
    late: deque[tuple[int, float]] = field(default_factory=deque)

    def beat(self, now: float) -> float:
        """Note a beat; returns its delay. The schedule starts afresh after a late one: one block is one delay."""
        delay = max(0.0, now - self.due)
        if delay > self.blocked_after:
            self.late.append((self.count, delay))
        self.due = now + self.interval
        self.count += 1
        return delay

    def overdue(self, now: float) -> float:
        """Seconds that the next beat is late by now: a block in progress."""
        return max(0.0, now - self.due)


@dataclass(frozen=True, slots=True)
class Block:
    """A finished block. `seen` is False where nothing could look while it lasted."""

    seconds: float
    seen: bool


@dataclass(slots=True)
class BlockWatch:
    """What the watchdog's own eyes saw of a block.

    Time in which the watchdog itself did not run (a C call held the GIL, the process or the machine was suspended) is
    not witnessed and does not count towards `stuck_seconds`: a resumed process must not be called stuck at once.
    """

    longest_look: float = 1.0
    stuck_seconds: float = 0.0
    watching_since: float | None = None
    _looked: float | None = None
    _count: int = -1
    _captured: int = -1

    def restart(self) -> None:
        """Another loop begins to beat."""
        self.stuck_seconds, self._count, self._captured = 0.0, -1, -1

    def look(self, now: float, beats: Beats | None) -> tuple[bool, tuple[Block, ...]]:
        """One tick: whether to name the culprit now (once a block), and the blocks that ended since the last tick.

        Without beats (no loop, or not yet) it only remembers that it watches.
        """
        gap = 0.0 if self._looked is None else now - self._looked
        if self._looked is None or gap > self.longest_look:
            self.watching_since = now
        self._looked = now
        if beats is None:
            self.stuck_seconds = 0.0
            return False, ()
        count, overdue = beats.count, beats.overdue(now)
        if overdue <= 0 or count != self._count:
            self.stuck_seconds = 0.0
        self._count = count
        self.stuck_seconds = min(self.stuck_seconds + min(gap, self.longest_look), overdue)
        ended = []
        while beats.late:
            number, delay = beats.late.popleft()
            ended.append(Block(delay, seen=number == self._captured))
        capture = overdue > beats.blocked_after and self._captured != count
        if capture:
            self._captured = count
        return capture, tuple(ended)
