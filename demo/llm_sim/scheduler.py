"""The engine's scheduler: which request computes how many tokens in a step. Pure.

Follows vLLM v1: running requests come first, then waiting ones in order of arrival; one step computes at most
``max_batched_tokens``; a prompt longer than what is left is cut into chunks and yields no output until its
last one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Request:
    """One request inside the engine; token counts, and monotonic seconds for the two times."""

    request_id: str
    prompt_tokens: int
    max_tokens: int
    queued_at: float = 0.0
    scheduled_at: float = 0.0
    generated: int = 0
    computed: int = 0
    blocks: int = 0

    @property
    def to_compute(self) -> int:
        """Tokens whose keys and values are missing before the next token can be sampled."""
        return self.prompt_tokens + self.generated - self.computed


@dataclass(frozen=True)
class Step:
    """What one forward pass computes: tokens per request, split into prefill and decode."""

    tokens: dict[str, int]
    prefill_tokens: int
    decodes: int


@dataclass(frozen=True)
class Stats:
    """What vLLM's ``SchedulerStats`` carries: gauges after the step, and increments since the last ones."""

    running: int
    waiting: int
    kv_usage: float
    prefix_queries: int
    preemptions: int


@dataclass(frozen=True)
class Output:
    """One new token of one request, with the reason if it was the last."""

    request_id: str
    finish_reason: str | None
    queued_at: float
    scheduled_at: float


@dataclass
class Scheduler:
    """Queue, slots and KV blocks of one engine.

    ``slots`` requests run at once, ``max_batched_tokens`` tokens per step, ``kv_blocks`` blocks of
    ``block_size`` tokens. One block is never handed out, as in vLLM: usage is of ``kv_blocks - 1``.
    """

    slots: int
    max_batched_tokens: int
    kv_blocks: int
    block_size: int
    waiting: deque[Request] = field(default_factory=deque)
    running: list[Request] = field(default_factory=list)
    _prefix_queries: int = 0
    _preemptions: int = 0
    _stats_due: bool = False

    @property
    def has_work(self) -> bool:
        """Whether a step is due; also once after an abort: so the gauges come down in vLLM from 0.10.2 on."""
        return bool(self.waiting or self.running or self._stats_due)

    @property
    def free_blocks(self) -> int:
        """Blocks that no request holds."""
        return self.kv_blocks - 1 - sum(request.blocks for request in self.running)

    def add(self, request: Request) -> None:
        """Put a request at the end of the queue."""
        self.waiting.append(request)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Drop requests whose clients left. They yield no output and are counted nowhere (vllm#31503)."""
        gone = set(request_ids)
        self.waiting = deque(request for request in self.waiting if request.request_id not in gone)
        self.running = [request for request in self.running if request.request_id not in gone]
        self._stats_due = True

    def schedule(self, now: float) -> Step:
        """Choose the next step and take its KV blocks."""
        budget = self.max_batched_tokens
        tokens: dict[str, int] = {}
        decodes = 0
        preemptions_before = self._preemptions
        for request in list(self.running):
            if request not in self.running:
                continue  # preempted by an earlier one in this very step
            share = min(request.to_compute, budget)
            if share == 0 or not self._allocate(request, share):
                continue
            decodes += request.to_compute == 1 and request.generated > 0
            tokens[request.request_id] = share
            budget -= share
        preempted = self._preemptions > preemptions_before
        while not preempted and self.waiting and budget > 0 and len(self.running) < self.slots:
            request = self.waiting[0]
            share = min(request.to_compute, budget)
            if self._blocks_for(request, share) > self.free_blocks:
                break
            self.waiting.popleft()
            self.running.append(request)
            self._allocate(request, share)
            request.scheduled_at = request.scheduled_at or now
            self._prefix_queries += request.to_compute
            tokens[request.request_id] = share
            budget -= share
        still_running = {request.request_id for request in self.running}
        tokens = {key: share for key, share in tokens.items() if key in still_running}
        return Step(tokens, sum(tokens.values()) - decodes, decodes)

    def complete(self, step: Step) -> list[Output]:
        """Account for a finished step: a token for every request whose prompt is through, and freed slots."""
        outputs: list[Output] = []
        for request in list(self.running):
            request.computed += step.tokens.get(request.request_id, 0)
            if request.request_id not in step.tokens or request.to_compute > 0:
                continue  # a partial prefill yields no output: the step counters stay where they are
            request.generated += 1
            reason = "length" if request.generated >= request.max_tokens else None
            outputs.append(Output(request.request_id, reason, request.queued_at, request.scheduled_at))
            if reason is not None:
                self.running.remove(request)
        self._stats_due = False
        return outputs

    def take_stats(self) -> Stats:
        """The gauges now and the increments since this was last called."""
        used = self.kv_blocks - 1 - self.free_blocks
        stats = Stats(
            running=len(self.running),
            waiting=len(self.waiting),
            kv_usage=used / (self.kv_blocks - 1),
            prefix_queries=self._prefix_queries,
            preemptions=self._preemptions,
        )
        self._prefix_queries = self._preemptions = 0
        return stats

    def _blocks_for(self, request: Request, share: int) -> int:
        return -(-(request.computed + share) // self.block_size) - request.blocks

    def _allocate(self, request: Request, share: int) -> bool:
        """Give ``request`` blocks for ``share`` tokens, preempting the youngest; False if that was itself."""
        wanted = self._blocks_for(request, share)
        while wanted > self.free_blocks:
            victim = self.running.pop()
            victim.computed = victim.blocks = 0
            self.waiting.appendleft(victim)
            self._preemptions += 1
            if victim is request:
                return False
        request.blocks += wanted
        return True
