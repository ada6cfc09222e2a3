"""One inference engine in virtual time: queue, slots, prefill, decode, and the counters that vLLM would show.

Between two events every quantity grows linearly, so a week costs as much as its events, not as its steps. One prompt is
prefilled at a time; requests that decode advance together on one clock (`_clock`, in tokens per request), slower while a
prefill shares their steps.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

from benchmarks.week.servers import Server

FOREVER = float("inf")


@dataclass(eq=False)
class Request:
    """One request; `patience` is how long its client waits, in seconds. `ended` tells how: finished, aborted, lost."""

    prompt: int
    tokens: int
    patience: float
    arrived: float
    batch: bool = False
    probe: bool = False
    ended: str | None = None
    ended_at: float | None = None


@dataclass
class Gauges:
    """What the page shows; refreshed by a step, and by nothing else."""

    running: int = 0
    waiting: int = 0
    kv: float = 0.0


@dataclass
class Engine:
    """The engine process of one incarnation. All times are seconds since the start of the week."""

    server: Server
    now: float
    waiting: deque[Request] = field(default_factory=deque)
    prefilling: deque[Request] = field(default_factory=deque)
    decoding: list[tuple[float, int, Request]] = field(default_factory=list)
    gauges: Gauges = field(default_factory=Gauges)
    prompt_tokens: int = 0
    first_tokens: int = 0
    finished: int = 0
    frozen_until: float = 0.0
    admits: bool = True
    decodes: bool = True
    _clock: float = 0.0
    _steps: float = 0.0
    _generated: float = 0.0
    _prefilled: float = 0.0
    _order: int = 0

    @property
    def held(self) -> int:
        """Requests inside, whatever the gauges say."""
        return len(self.waiting) + len(self.prefilling) + len(self.decoding)

    @property
    def steps(self) -> int:
        """Steps with an output, as ``vllm:iteration_tokens_total_count`` counts them."""
        return int(self._steps) + self.first_tokens

    @property
    def generation_tokens(self) -> int:
        return int(self._generated) + self.first_tokens

    def add(self, request: Request) -> None:
        """A request arrives; call `advance` to its time before."""
        self.waiting.append(request)
        self._admit()

    def abort(self, request: Request) -> None:
        """Its client left. The slot is free, and one step refreshes the gauges unless this version does not send them."""
        if request.ended is not None:
            return
        request.ended, request.ended_at = "aborted", self.now
        if request in self.waiting:
            self.waiting.remove(request)
        elif request in self.prefilling:
            if self.prefilling[0] is request:
                self._prefilled = 0.0
            self.prefilling.remove(request)
        else:
            self.decoding = [entry for entry in self.decoding if entry[2] is not request]
            heapq.heapify(self.decoding)
        self._admit()
        if not self.is_frozen and not self.server.stale_gauges:
            self._publish()

    @property
    def is_frozen(self) -> bool:
        return self.now < self.frozen_until

    def advance(self, until: float) -> None:
        """Let the engine work until then."""
        while self.now < until:
            if self.is_frozen:
                self.now = min(until, self.frozen_until)
                if self.is_frozen:
                    return
            self._admit()
            self._run_to(min(until, self._next_event()))
            self._settle()

    def _next_event(self) -> float:
        ends = [FOREVER]
        if self.prefilling:
            ends.append(self.now + (self.prefilling[0].prompt - self._prefilled) / self.server.prefill_rate)
        if self.decoding and self._decode_rate() > 0:
            ends.append(self.now + max(0.0, self.decoding[0][0] - self._clock) / self._decode_rate())
        return min(ends)

    def _decode_rate(self) -> float:
        if not self.decodes:
            return 0.0
        return self.server.decode_rate * (self.server.decode_share if self.prefilling else 1.0)

    def _run_to(self, moment: float) -> None:
        seconds = moment - self.now
        advanced = self._decode_rate() * seconds if self.decoding else 0.0
        self._clock += advanced
        self._steps += advanced
        self._generated += advanced * len(self.decoding)
        if self.prefilling:
            self._prefilled += self.server.prefill_rate * seconds
        self.now = moment
        if advanced > 0 or ((self.prefilling or self.waiting) and not self.server.stale_gauges):
            self._publish()

    def _settle(self) -> None:
        """Requests that reached their first or last token by now."""
        tiny = 1e-6
        progressed = False
        if self.prefilling and self._prefilled >= self.prefilling[0].prompt - tiny:
            request = self.prefilling.popleft()
            self._prefilled = 0.0
            self.prompt_tokens += request.prompt
            self.first_tokens += self.decodes  # with a dead decode nothing is sampled (vLLM issue 45094)
            progressed = self.decodes
            if request.tokens <= 1 and self.decodes:
                self._finish(request)
            else:
                self._order += 1
                heapq.heappush(self.decoding, (self._clock + max(1, request.tokens - 1), self._order, request))
        while self.decodes and self.decoding and self.decoding[0][0] <= self._clock + tiny:
            self._finish(heapq.heappop(self.decoding)[2])
            progressed = True
        self._admit()
        if progressed:
            self._publish()

    def _finish(self, request: Request) -> None:
        request.ended, request.ended_at = "finished", self.now
        self.finished += 1

    def _admit(self) -> None:
        if self.is_frozen or not self.admits:
            return
        while self.waiting and len(self.prefilling) + len(self.decoding) < self.server.slots:
            self.prefilling.append(self.waiting.popleft())

    def _publish(self) -> None:
        self.gauges = Gauges(len(self.prefilling) + len(self.decoding), len(self.waiting), self._kv())

    def _kv(self) -> float:
        chunk = self.server.chunk
        tokens = chunk * (self._prefilled // chunk)
        tokens += sum(request.prompt + request.tokens - max(0.0, ends - self._clock) for ends, _, request in self.decoding)
        blocks = tokens // self.server.block_tokens
        return min(1.0, blocks / self.server.kv_blocks)
