"""Watches one target: look, judge, publish, again. Everything that is said of it passes through `observe`."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from llm_common.guard import Guard
from llm_exporter import canary, observed
from llm_exporter.clock import Clock
from llm_exporter.engines import Look, Page
from llm_exporter.flight import CanaryFlight
from llm_exporter.judge import CanaryOutcome, CanaryRequest, State
from llm_exporter.large_pages import off_loop
from llm_exporter.looks import Looker
from llm_exporter.loop_lag import LoopLag
from llm_exporter.pipeline import Mind, Seen, step
from llm_exporter.recording import Recorder
from llm_exporter.scrape import Scraper
from llm_exporter.shared_task import SharedTask
from llm_exporter.snapshot import Snapshot
from llm_exporter.target_config import Pace, Target
from llm_exporter.witnesses import Testimony, Witnesses

_log = logging.getLogger("llm.monitor")
LONGEST_PAUSE = 5.0
Publish = Callable[[Snapshot], None]


class Monitor:
    """One target's loop, its memory, and its one canary.

    Args:
        target: Whom to watch.
        scraper: The HTTP client.
        clock: Time.
        guard: Owner of the tasks.
        lag: Delays of our own loop: a timeout that we caused ourselves is not judged.
        publish: Called with every new snapshot.
        sends_canaries: False for an exporter that shall never send any.
        recorder: Gets every look, canary and what was learned, if given.
    """

    def __init__(
        self,
        target: Target,
        scraper: Scraper,
        clock: Clock,
        guard: Guard,
        *,
        lag: LoopLag | None = None,
        publish: Publish | None = None,
        sends_canaries: bool = True,
        recorder: Recorder | None = None,
    ) -> None:
        self._scraper = scraper
        self._clock = clock
        self._lag = lag
        self._publish = publish
        self._sends_canaries = sends_canaries
        self._recorder = recorder
        self._mind = Mind.of(target.engine, target.described)
        self._witnesses = Witnesses(target.options.witness, scraper, clock.monotonic)
        self._looker = Looker(scraper, target, clock)
        self._lock = asyncio.Lock()
        self._flight = CanaryFlight(guard, f"canary:{target.name}", self._ask, self._landed)
        self._outcome: CanaryOutcome | None = None
        self._proof = SharedTask(f"proof:{target.name}", self._prove)
        self._raw = SharedTask(f"raw:{target.name}", self._fetch_raw)
        self._proved: float | None = None
        self._about_for: str | None = None
        self.late = 0
        self.snapshot = Snapshot(target, interval=target.options.pace(self._mind.engine).interval, since=clock.unix())

    @property
    def target(self) -> Target:
        """The target as configured now."""
        return self.snapshot.target

    @property
    def interval(self) -> float:
        """Seconds between two looks."""
        return self._pace.interval

    @property
    def _pace(self) -> Pace:
        return self.target.options.pace(self._mind.engine)

    def reconfigure(self, target: Target) -> None:
        """Take a changed configuration of the same server; the history stays."""
        if target.options != self.target.options:
            # A key that was wrong may be right now: what was refused to us is asked for again.
            self._looker.forget()
        self._looker.target = target
        if target.options.witness != self._witnesses.config:
            self._witnesses = Witnesses(target.options.witness, self._scraper, self._clock.monotonic)
        self.snapshot = replace(self.snapshot, target=target, interval=target.options.pace(self._mind.engine).interval)

    @property
    def asking(self) -> bool:
        """Whether a canary is in flight."""
        return self._flight.request is not None

    async def run(self) -> None:
        """Look for ever, at a pace of its own; the first look is spread over the interval by the target's name."""
        await self._clock.sleep(self.interval * _spread(self.target.name))
        due = self._clock.monotonic()
        while True:
            if self._lag is not None:
                await self._lag.admission.turn()
            await self.observe()
            due += self.interval
            now = self._clock.monotonic()
            if now > due + self.interval / 2:
                self.late += 1
                due = now
            await self._clock.sleep(max(0.0, due - now))

    async def observe(self) -> Snapshot:
        """One look, judged and published; waits for its turn if one is under way."""
        try:
            return await self._observe()
        except Exception as error:  # noqa: BLE001 - a page that breaks its adapter must not end the watch
            _log.exception("the look failed inside the exporter; please report this", extra={"target": self.target.name})
            self._set(observed.after_fault(self.snapshot, error, self._clock.monotonic(), self._clock.unix()))
            return self.snapshot

    async def _observe(self) -> Snapshot:
        async with self._lock:
            outcome, self._outcome = self._outcome, None
            flying = self._flight.request
            interval, timeout = self._pace
            looking = self._looker.look(self._mind.engine, timeout, interval, self._mind.history.served)
            testimony = Testimony()
            if self._witnesses.config:
                look, testimony = await asyncio.gather(looking, self._testify(timeout))
            else:
                look = await looking
            if self._ours_was_the_delay(look, timeout):
                self.late += 1
                self._outcome = outcome
                return self.snapshot
            judged = partial(
                step,
                self._mind,
                look,
                self.target.options.settings(self._mind.engine),
                canary=outcome,
                own_canary=flying,
                witness=testimony.witness,
                loop=testimony.loop,
            )
            self._mind, seen = await off_loop(look.metrics.body, judged)
            if self._recorder is not None:
                self._recorder.look(look, testimony.witness, testimony.loop)
            await self._learn(seen)
            self._guess_again(seen)
            self._take(seen, testimony, self._clock.monotonic() - look.t)
        if seen.verdict.wants is not None:
            self._flight.start(seen.verdict.wants)
        return self.snapshot

    async def _testify(self, timeout: float) -> Testimony:
        verdict = self.snapshot.verdict
        well = (State.BUSY, State.IDLE, State.SLEEPING)
        return await self._witnesses.testify(
            moving=verdict.state is State.BUSY and verdict.progress == 1,
            suspect=verdict.state not in well,
            timeout=min(timeout, 2.0),
        )

    def _ours_was_the_delay(self, look: Look, timeout: float) -> bool:
        late = self._lag is not None and self._lag.since(look.t) > timeout / 4
        return late and look.metrics.kind == "timeout"

    def _guess_again(self, seen: Seen) -> None:
        """A server that never showed metrics may come back with some, or as another (restarted with the right flag)."""
        engine = self._mind.engine
        blank = engine is not None and (engine.metrics_path is None or not self._mind.history.ever_answered)
        if blank and not self._mind.fixed and seen.look.metrics.kind is not None:
            self._mind = replace(self._mind, engine=None)
            self._looker.forget()

    async def _learn(self, seen: Seen) -> None:
        """Ask once per process for version and model; until then the judge knows less, never something wrong."""
        engine = self._mind.engine
        answered = seen.observation.reach == "answered" and bool(seen.reading.lanes)
        if engine is None or not (answered or engine.metrics_path is None):
            return
        process = f"{engine.kind} {seen.observation.incarnation}"
        if process != self._about_for or seen.verdict.restarted:
            self._about_for = process
            self._looker.forget()
        known = await self._looker.about(engine)
        if known is not None and known != self._mind.known:
            self._mind = replace(self._mind, known=known)
            if self._recorder is not None:
                self._recorder.about(known)

    def _take(self, seen: Seen, testimony: Testimony, seconds: float) -> None:
        before = self.snapshot
        now = observed.after_look(
            before, seen, self._mind, testimony.gpus, self.interval, seconds, self._looker.static_seconds
        )
        if before.looked is None or before.verdict.state is not now.verdict.state:
            grave = now.verdict.state in (State.STUCK, State.FAILED)
            level = logging.WARNING if grave else logging.INFO
            _log.log(level, "%s", now.verdict.sentence, extra={"target": before.name})
        self._set(now)

    def _set(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        if self._publish is not None:
            self._publish(snapshot)

    async def _ask(self, request: CanaryRequest) -> CanaryOutcome:
        if not self._sends_canaries:
            words = "this exporter sends no canaries"
            return CanaryOutcome(request.kind, "none", self._clock.monotonic(), 0.0, words=words)
        engine = self._mind.engine
        model = self.target.options.canary.model or self._mind.known.model or self.snapshot.model
        plan = engine.canary if engine is not None else None
        return await canary.ask(self._scraper, self._clock, self.target, plan, request, model)

    async def _landed(self, outcome: CanaryOutcome) -> None:
        self._outcome = outcome
        if self._recorder is not None:
            self._recorder.canary(outcome)
        self._set(observed.after_canary(self.snapshot, outcome))
        _log.info(
            "a canary was sent: %s", outcome.result,
            extra={"target": self.target.name, "seconds": round(outcome.seconds, 3), "words": outcome.words},
        )  # fmt: skip
        if outcome.result != "none":
            # The answer, or the silence, counts only with a page that was read after it.
            await self.observe()

    async def prove(self) -> Snapshot:
        """Fresh looks now. Callers at the same time share one proof; the next begins an interval after it."""
        return await self._proof.result()

    async def _prove(self) -> Snapshot:
        if self._proved is not None:
            await self._clock.sleep(max(0.0, self._proved + self.interval - self._clock.monotonic()))
        self._proved = self._clock.monotonic()
        snapshot = await self.observe()
        verdict = snapshot.verdict
        if snapshot.up and (verdict.progress is None or verdict.state in (State.STALLED, State.STUCK)):
            # One look shows values; that they stand still is only seen by a second one.
            await self._clock.sleep(min(self.interval, LONGEST_PAUSE))
            snapshot = await self.observe()
        return snapshot

    async def raw(self) -> Page:
        """The target's metrics page as it is now, for people; not judged. Callers at the same time share one request."""
        return await self._raw.result()

    async def _fetch_raw(self) -> Page:
        async with self._lock:
            return await self._looker.raw(self._mind.engine, self._pace.timeout)

    async def stop(self) -> None:
        """Cancel what is in flight."""
        await self._proof.stop()
        await self._raw.stop()
        await self._flight.stop()


def _spread(name: str) -> float:
    """A stable number from 0 to 1 for a name: looks at many targets are spread over time, the same in every run."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) / 2**32
