"""The state of one process and its verdicts. It has no thread of its own, and its clocks are given."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from llm_heartbeat import health
from llm_heartbeat.culprit import Culprit
from llm_heartbeat.dependencies import Dependency
from llm_heartbeat.faults import Faults, log
from llm_heartbeat.history import History
from llm_heartbeat.inflight import InFlight
from llm_heartbeat.lag import Beats, BlockWatch, LagWindow
from llm_heartbeat.limits import Limit
from llm_heartbeat.report import Report
from llm_heartbeat.settings import Settings
from llm_heartbeat.sources import Source
from llm_heartbeat.startup import FAILED, Startup
from llm_heartbeat.view import view_of

if TYPE_CHECKING:
    from llm_heartbeat.metrics import Metrics


class State:
    """What is known about this process. Times are monotonic seconds of `clock`; `wall` is Unix time for people."""

    def __init__(
        self, settings: Settings, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.wall = wall
        self.faults = Faults()
        self.metrics: Metrics | None = None  # made when a loop is attached: see Heartbeat.start
        self.startup = Startup(clock())
        self.history = History(int(settings.history))
        self.beats: Beats | None = None
        self.lag = LagWindow(settings.window)
        self.watch = BlockWatch()
        self.culprit: Culprit | None = None
        self.sources: dict[str, Source] = {}
        self.dependencies: dict[str, Dependency] = {}
        self.requests = InFlight(settings.drain_limit, self.out_of_memory)
        self.drain_reason = ""
        self.drain_since: float | None = None
        self._reports_itself = settings.manual_startup
        self.values: dict[str, float | None] = {}  # by limit, as last read
        self._lock = threading.RLock()
        highs = {
            "queue": settings.ready_queue,
            "kv": settings.ready_kv,
            "gpu": settings.ready_gpu,
            "lag": settings.ready_lag * 1000,
        }
        self.limits = {name: Limit(high, high * settings.clear, settings.hold) for name, high in highs.items() if high}
        self.note_changes()  # what the first change is a change from

    # What the application may say -------------------------------------------------------------------------------

    def loading(self, reason: str = "") -> None:
        """The weights are being loaded: `startup` and `ready` are 503 until the application calls `loaded()`."""
        self._reports_itself = True
        with self._lock:
            self.startup.loading(reason, self.clock())
            self.note_changes()

    def loaded(self) -> None:
        """The model can serve, or can be warmed up if `needs_warmup()` was called before."""
        with self._lock:
            self.startup.loaded(self.clock())
            self.note_changes()

    def serving(self) -> None:
        """The server has started: the model is there, unless the application reports its loading itself."""
        if not self._reports_itself:
            self.loaded()

    def load_failed(self, reason: str) -> None:
        """The load failed for good: `startup` is 500 at once."""
        with self._lock:
            self.startup.failed(reason)
            self.note_changes()

    def needs_warmup(self, reason: str = "warming up") -> None:
        """`ready` waits for `warmed_up()`: before the first request, or once more after an out-of-memory recovery."""
        with self._lock:
            self.startup.needs_warmup(reason)
            self.note_changes()

    def warmed_up(self) -> None:
        """The warm-up that was asked for is done."""
        with self._lock:
            self.startup.warmed_up(self.clock())
            self.note_changes()

    def out_of_memory(self) -> None:
        """An out-of-memory error was survived; asks for a new warm-up if `LLM_HEARTBEAT_REWARM_AFTER_OOM` is on."""
        if self.settings.rewarm_after_oom:
            self.needs_warmup("warming up again after an out-of-memory error")

    def drain(self, reason: str = "draining") -> None:
        """Take no new requests: `ready` turns 503 at once. Safe in a signal handler: it only sets values."""
        if not self.drain_reason:
            self.drain_since = self.clock()
            self.drain_reason = reason

    @contextmanager
    def load(self, what: str = "model") -> Iterator[None]:
        """`with heartbeat.load("weights"):` loading, then loaded, or failed with the exception's text (it goes on)."""
        self.loading(f"loading {what}")
        try:
            yield
        except BaseException as error:
            self.load_failed(f"loading {what} failed: {type(error).__name__}: {error}")
            raise
        self.loaded()

    # What the threads say ---------------------------------------------------------------------------------------

    def attach(self) -> None:
        """A loop begins to beat now."""
        now = self.clock()
        self.drain_reason, self.drain_since = "", None
        self.watch.restart()
        self.beats = Beats(self.settings.interval, now + self.settings.interval, self.settings.blocked_after)

    def after_fork(self) -> None:
        """In a forked child: a lock may have been held by a thread that is not there any more."""
        self._lock = threading.RLock()
        self.lag = LagWindow(self.settings.window)
        self.detach()

    def detach(self) -> None:
        """The loop ends: there is nothing left that could be late."""
        self.beats = None

    def beat(self) -> None:
        """One heartbeat, in the loop's thread."""
        if self.beats is not None:
            now = self.clock()
            delay = self.beats.beat(now)
            self.lag.add(now, delay)
            if self.metrics is not None:
                self.metrics.observe("llm_event_loop_delay_seconds", delay)

    def tick(self, find_culprit: Callable[[float], Culprit | None]) -> None:
        """One look of the watchdog: blocks, limits, changes."""
        now = self.clock()
        self._look_at_loop(now, find_culprit)
        values = {name: source.value(now) for name, source in tuple(self.sources.items())}
        self.values = values | {"lag": self._current_lag(now) * 1000}
        with self._lock:
            for name, limit in self.limits.items():
                limit.observe(now, self.values.get(name))
            self.note_changes()

    def _look_at_loop(self, now: float, find_culprit: Callable[[float], Culprit | None]) -> None:
        beats = self.beats
        capture, ended = self.watch.look(now, beats)
        if capture and beats is not None:
            late = beats.overdue(now)
            self.culprit = find_culprit(late)
            log.warning("the event loop has not turned for %.1f s: blocked in %s", late, self.culprit or "an unknown place")
            if self.metrics is not None:
                self.metrics.add("llm_event_loop_blocked_total")
                self.metrics.blocked_by(self.culprit.label if self.culprit else "unknown")
        for block in ended:
            if block.seen:
                log.warning("the event loop turns again after %.1f s; it was blocked in %s", block.seconds, self.culprit)
                continue
            log.warning(
                "the event loop did not turn for %.1f s and no thread could look: a C call held the GIL, "
                "or the process was suspended",
                block.seconds,
            )
            if self.metrics is not None:
                self.metrics.add("llm_event_loop_blocked_total")
                self.metrics.blocked_by("unseen")

    def _current_lag(self, now: float) -> float:
        """The last second's lag: the limit of readiness has a hold time of its own and needs no longer memory."""
        return max(self.lag.latest(now - 1.0), self.beats.overdue(now) if self.beats else 0.0)

    # What is answered -------------------------------------------------------------------------------------------

    def report(self, endpoint: str, from_loop: bool = False) -> Report:
        """The answer of `startup`, `live` or `ready` now. `from_loop`: asked in the loop's thread, so the loop turns."""
        return health.ENDPOINTS[endpoint](view_of(self, from_loop))

    def last_beat(self) -> float | None:
        """Unix time of the last heartbeat; None before the first."""
        beats = self.beats
        if beats is None or not beats.count:
            return None
        return self.wall() - (self.clock() - (beats.due - beats.interval))

    @property
    def load_has_failed(self) -> bool:
        """Whether the start is lost."""
        return self.startup.phase == FAILED

    def note_changes(self) -> None:
        """Compare with the last answers: each change is an event. Any thread."""
        with self._lock, self.faults.passed_by("changes"):
            view = view_of(self)
            for endpoint, answer in health.ENDPOINTS.items():
                report = answer(view)
                change = self.history.note(self.wall(), endpoint, report.status, report.failed, report.reason)
                if change is not None and self.metrics is not None:
                    self.metrics.add("llm_heartbeat_changes_total", 1, endpoint, change.after)
