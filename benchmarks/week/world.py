"""A server's week as it unfolds: its process, its clients, its faults, and whoever restarts it.

A discrete-event simulation. Rules see only what they could see in the real world (an HTTP answer, a metrics page, the fate
of a request of their own) and can only restart the container or tell a person.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

from benchmarks.week.engine import FOREVER, Engine, Request
from benchmarks.week.schedule import HOUR, MINUTE, Arrival, Event, Hang, Happening, Schedule
from benchmarks.week.score import Cause, Score, Struck

PERSON_NOTICES = 60 * MINUTE
"""A hang that no rule ends is ended by a person after this long."""
PERSON_ACTS = 15 * MINUTE
"""From the page to the restart, when a rule tells a person."""
STOP_SECONDS = 10.0
_LOOK_AGAIN = 20.0
_STRIKES_WITHIN = 12 * HOUR
_JOB_STEP = 30.0


class World:
    """`run` plays the schedule; rules are given as functions that set up their own timers with `at`."""

    def __init__(self, schedule: Schedule, seed: int) -> None:
        self.schedule, self.server = schedule, schedule.server
        self.now = 0.0
        self.score = Score()
        self.started = 0.0
        self.up_at = 0.0
        self.asleep = False
        self.restarts = 0
        self.starts: list[tuple[float, Cause]] = []
        self.api_blocked_until = 0.0
        self.hang: Struck | None = None
        self._chance = random.Random(f"{seed}/{self.server.name}/process")
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._armed: Hang | None = None
        self._down_since: float | None = None
        self._first_compile: float | None = None
        self._open: list[Request] = []
        self._jobs: list[list[Request]] = [[] for _ in schedule.jobs]
        self._cancelled: set[int] = set()
        self.engine = Engine(self.server, 0.0)

    # --- what rules may do and see ------------------------------------------------------------------

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Call `what` then; after the week's end nothing is called."""
        heapq.heappush(self._timers, (when, next(self._order), what))

    @property
    def refused(self) -> bool:
        """The port is closed: no process, or it still loads its model."""
        return self.now < self.up_at

    def answers_within(self, timeout: float) -> bool:
        """Whether a cheap GET (/health, /metrics) that is sent now is answered in time."""
        return not self.refused and self.api_blocked_until - self.now < timeout

    def submit(self, prompt: int, tokens: int) -> Request | None:
        """Send a request of a rule's own; None if the port is closed."""
        if self.refused:
            return None
        request = Request(prompt, tokens, FOREVER, self.now, probe=True)
        self._enter(request)
        return request

    def withdraw(self, request: Request) -> None:
        """Give up waiting for it: the client disconnects."""
        if request.ended is None:
            self.engine.advance(self.now)
            self.engine.abort(request)

    def restart(self, why: str) -> None:
        """The rule restarts the container."""
        if self.hang is not None:
            self.hang.restarted = self.now
        else:
            self.score.false_restarts += 1
            self.score.false_reasons.append(why)
            self.score.lost_requests += sum(request.ended is None for request in self._open if not request.probe)
        self._start_anew(self._warm(), Cause.RULE)

    def page(self, why: str) -> None:
        """The rule tells a person, who comes and restarts what hangs."""
        hang = self.hang
        if hang is None:
            self.score.false_pages += 1
            self.score.false_reasons.append(f"told a person at {self.now / HOUR:.2f} h: {why}")
        elif hang.paged is None:
            hang.paged = self.now
            self.at(self.now + PERSON_ACTS, lambda: self._person(hang))

    # --- the week -----------------------------------------------------------------------------------

    def run(self) -> Score:
        """Play it to the end."""
        for arrival in self.schedule.arrivals:
            self.at(arrival.at, lambda arrival=arrival: self._arrive(arrival))  # type: ignore[misc]
        for happening in self.schedule.happenings:
            self.at(happening.at, lambda happening=happening: self._happen(happening))  # type: ignore[misc]
        for number, (begin, _, _) in enumerate(self.schedule.jobs):
            self.at(begin, lambda number=number: self._work_on_job(number))  # type: ignore[misc]
        while self._timers and self._timers[0][0] < self.schedule.length:
            self.now, _, what = heapq.heappop(self._timers)
            if not self.refused:
                self.engine.advance(self.now)
            what()
        self.now = self.schedule.length
        self._account_up()
        return self.score

    def _arrive(self, arrival: Arrival) -> None:
        if self.refused or self.asleep or self.api_blocked_until == FOREVER:
            return
        self._send(Request(arrival.prompt, arrival.tokens, arrival.patience, self.now, batch=arrival.batch))

    def _send(self, request: Request) -> None:
        self._open = [known for known in self._open if known.ended is None]
        self._open.append(request)
        self._enter(request)
        self.at(self.now + request.patience, lambda: self.withdraw(request))

    def _enter(self, request: Request) -> None:
        self.engine.advance(self.now)
        if self.asleep or self.api_blocked_until == FOREVER:
            self.engine.waiting.append(request)  # nobody takes it in: it waits without being seen
            return
        if self._first_compile is not None and self.engine.held == 0:
            self.engine.frozen_until = self.now + self._first_compile
            self._first_compile = None
        if self._armed is Hang.FIRST_STEP and self.engine.held == 0:
            self.engine.frozen_until = FOREVER
            self._begin_hang(Hang.FIRST_STEP)
        self.engine.add(request)
        if self._armed is Hang.ADMISSION:
            self._begin_hang(Hang.ADMISSION)

    def _work_on_job(self, number: int) -> None:
        _, end, width = self.schedule.jobs[number]
        if self.now >= end or number in self._cancelled:
            return
        mine = self._jobs[number] = [request for request in self._jobs[number] if request.ended is None]
        if not (self.refused or self.asleep or self.api_blocked_until == FOREVER):
            for _ in range(width - len(mine)):
                request = Request(
                    self._chance.randint(1000, 8000), self._chance.randint(4000, 12_000), 4 * HOUR, self.now, batch=True
                )
                mine.append(request)
                self._send(request)
        self.at(self.now + _JOB_STEP, lambda: self._work_on_job(number))

    # --- events and hangs ---------------------------------------------------------------------------

    def _happen(self, happening: Happening) -> None:
        if isinstance(happening.what, Hang):
            self._strike(happening.what, self.now + _STRIKES_WITHIN)
            return
        match happening.what:
            case Event.REDEPLOY:
                self._planned()
            case Event.CRASH:
                self._start_anew(self._warm(), Cause.POLICY)
            case Event.SLEEP:
                self._sleep(self.now + 5 * HOUR)
            case Event.WAKE:
                self._wake()
            case Event.COMPILE:
                self._compile(happening.value, self.now + 3 * HOUR)
            case Event.FIRST_COMPILE:
                self._first_compile = max(self._first_compile or 0.0, happening.value)
            case Event.LOOP_STALL:
                if not self.refused and self.hang is None:
                    self.api_blocked_until = self.now + happening.value
            case Event.MASS_ABORT:
                self._everybody_leaves()

    def _strike(self, kind: Hang, until: float) -> None:
        """Let the hang happen as soon as its condition holds."""
        engine = self.engine
        able = not self.refused and not self.asleep and self.hang is None and not engine.is_frozen
        if able and kind is Hang.BUSY_STEP and (engine.decoding or engine.prefilling):
            engine.frozen_until = FOREVER
            self._begin_hang(kind)
        elif able and kind is Hang.DEAD_DECODE and engine.decoding:
            engine.decodes = False
            self._begin_hang(kind)
        elif able and kind is Hang.API:
            self.api_blocked_until = FOREVER
            self._begin_hang(kind)
        elif able and kind is Hang.ADMISSION:
            engine.admits = False
            self._armed = kind
            if engine.waiting:
                self._begin_hang(kind)
        elif able and kind is Hang.FIRST_STEP and engine.held == 0 and self._first_compile is None:
            self._armed = kind
        elif self.now < until:
            self.at(self.now + _LOOK_AGAIN, lambda: self._strike(kind, until))

    def _begin_hang(self, kind: Hang) -> None:
        hang = self.hang = Struck(kind, self.now)
        self._armed = None
        self.score.hangs.append(hang)
        self._account_down()
        self.at(self.now + PERSON_NOTICES, lambda: self._person(hang))

    def _person(self, hang: Struck) -> None:
        if self.hang is hang:
            hang.missed = hang.paged is None
            self._start_anew(self._warm(), Cause.PERSON)

    def _compile(self, seconds: float, until: float) -> None:
        engine = self.engine
        busy = not self.refused and (engine.decoding or engine.prefilling)
        if busy and self.hang is None and not engine.is_frozen and engine.admits:
            engine.frozen_until = self.now + seconds
        elif self.now < until:
            self.at(self.now + _LOOK_AGAIN, lambda: self._compile(seconds, until))

    def _sleep(self, until: float) -> None:
        """Put to sleep by its owner, who waits until nothing is held."""
        if not self.refused and self.hang is None and self._armed is None and self.engine.held == 0:
            self.asleep = True
            self.engine.frozen_until = FOREVER
        elif self.now < until:
            self.at(self.now + MINUTE, lambda: self._sleep(until))

    def _wake(self) -> None:
        if self.asleep:
            self.asleep = False
            self.engine.frozen_until = self.now

    def _everybody_leaves(self) -> None:
        for request in self._open:
            self.withdraw(request)
        self._cancelled |= {n for n, (begin, end, _) in enumerate(self.schedule.jobs) if begin <= self.now < end}

    # --- the process --------------------------------------------------------------------------------

    def _warm(self) -> float:
        return self._chance.uniform(10.0, 60.0)

    def _planned(self) -> None:
        """A new version: its kernels are compiled when its first work arrives."""
        unplanned_before = self._down_since
        self._start_anew(self._chance.uniform(30.0, 480.0), Cause.DEPLOYMENT)
        if unplanned_before is None:
            self._down_since = None

    def _start_anew(self, first_compile: float, cause: Cause) -> None:
        for request in [*self.engine.waiting, *self.engine.prefilling, *(entry[2] for entry in self.engine.decoding)]:
            request.ended, request.ended_at = "lost", self.now
        self._account_down()
        self.hang = None
        armed, self._armed = self._armed, None
        self.asleep = False
        self.restarts += 1
        self.started = self.now + STOP_SECONDS
        self.starts.append((self.started, cause))
        self.up_at = self.started + self._chance.uniform(*self.server.load_seconds)
        self.api_blocked_until = 0.0
        self._first_compile = first_compile
        self.engine = Engine(self.server, self.up_at)
        up_at = self.up_at
        self.at(up_at, lambda: self._account_up() if self.up_at == up_at else None)
        if armed is not None:  # every rule meets every hang: one that was about to strike does so in the new process
            self.at(up_at + MINUTE, lambda: self._strike(armed, self.now + _STRIKES_WITHIN))

    def _account_down(self) -> None:
        if self._down_since is None:
            self._down_since = self.now

    def _account_up(self) -> None:
        if self._down_since is not None and self.hang is None:
            self.score.downtime += self.now - self._down_since
            self._down_since = None
