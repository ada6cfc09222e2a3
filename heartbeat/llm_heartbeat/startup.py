"""The life of a start: loading, warming up, ready or failed. Pure."""

from dataclasses import dataclass

LOADING, WARMING_UP, READY, FAILED = "loading", "warming_up", "ready", "failed"


@dataclass(slots=True)
class Startup:
    """Phase and reason. Times are monotonic seconds.

    `failed` is final: a process whose load failed does not heal, a person or a restart does.
    """

    started: float
    phase: str = LOADING
    reason: str = ""
    warmup_needed: bool = False
    completed: float | None = None
    rewarming: bool = False

    def loading(self, reason: str, now: float) -> None:
        """The weights are being loaded; if it was ready before, other weights, whose time begins now."""
        if self.phase == READY:
            self.started, self.completed = now, None
        if self.phase != FAILED:
            self.phase, self.reason = LOADING, reason

    def loaded(self, now: float) -> None:
        """The model is there; what follows is the warm-up, if one is needed."""
        if self.phase != LOADING:
            return
        if self.warmup_needed:
            self.phase, self.reason = WARMING_UP, "warming up"
        else:
            self._ready(now)

    def warmed_up(self, now: float) -> None:
        """The warm-up is done."""
        self.warmup_needed = self.rewarming = False
        if self.phase == WARMING_UP:
            self._ready(now)

    def needs_warmup(self, reason: str) -> None:
        """A warm-up is due: the first one, or once more after an out-of-memory recovery.

        Once the start is complete it stays complete: only readiness waits for the second warm-up.
        """
        self.warmup_needed = True
        if self.phase == READY:
            self.rewarming, self.reason = True, reason

    def failed(self, reason: str) -> None:
        """The load failed; the reason is for a person. The first one is the cause and stays."""
        if self.phase != FAILED:
            self.phase, self.reason = FAILED, reason

    def elapsed(self, now: float) -> float:
        """Seconds from the process' start (or that of a later load) to readiness, or to now."""
        return (now if self.completed is None else self.completed) - self.started

    def _ready(self, now: float) -> None:
        self.phase, self.reason, self.completed = READY, "", now
