"""Circuit breaker and schedule of one dependency. Pure: time and jitter are given."""

from dataclasses import dataclass
from zlib import crc32


@dataclass(slots=True)
class Breaker:
    """Open after `failures` in a row, closed again after `successes` in a row.

    While it is open the pause doubles with every failure, up to `longest`: a dependency that fails is asked less.
    """

    every: float
    longest: float = 60.0
    failures: int = 3
    successes: int = 2
    open: bool = False
    failed_in_a_row: int = 0
    answered_in_a_row: int = 0

    def record(self, answered: bool) -> None:
        """Note the result of one check."""
        if answered:
            self.answered_in_a_row += 1
            self.failed_in_a_row = 0
            self.open = self.open and self.answered_in_a_row < self.successes
        else:
            self.failed_in_a_row += 1
            self.answered_in_a_row = 0
            self.open = self.open or self.failed_in_a_row >= self.failures

    def pause(self, jitter: float) -> float:
        """Seconds until the next check; `jitter` lies in [0, 1) and moves it by up to a fifth either way."""
        over = self.failed_in_a_row - self.failures + 1 if self.open else 0
        base = min(self.every * 2.0 ** min(max(over, 0), 16), max(self.longest, self.every))
        return base * (0.8 + 0.4 * jitter)


def may_leave(dependency: str, replica: str, share: float) -> bool:
    """Whether this replica belongs to the share that may become unready for that dependency.

    Replicas cannot see each other. A stable hash of their names divides them, so that a dependency that fails
    everywhere at once takes out about this share and never all (unless the share is 1).
    """
    return crc32(f"{dependency}/{replica}".encode()) / 2**32 < share
