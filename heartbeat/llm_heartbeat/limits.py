"""A limit with hysteresis and a minimum hold time, so that readiness does not flap. Pure."""

from dataclasses import dataclass


@dataclass(slots=True)
class Limit:
    """Trips at `high`, clears after the value stayed at or below `clear` for `hold` seconds.

    It changes at most once in `hold` seconds. An unknown value (None) neither trips nor keeps a check tripped:
    a broken sensor takes no replica out.
    """

    high: float
    clear: float
    hold: float
    tripped: bool = False
    since: float | None = None
    _calm_since: float | None = None

    def observe(self, now: float, value: float | None) -> bool:
        """Whether the limit is tripped, with this value at `now` (monotonic seconds)."""
        calm = value is None or value <= self.clear
        if not calm:
            self._calm_since = None
        elif self._calm_since is None:
            self._calm_since = now
        if self.tripped:
            if self._calm_since is not None and now - self._calm_since >= self.hold:
                self._change(now)
        elif value is not None and value >= self.high and (self.since is None or now - self.since >= self.hold):
            self._change(now)
        return self.tripped

    def _change(self, now: float) -> None:
        self.tripped = not self.tripped
        self.since = now
