"""The scheduler: slots, chunks, preemption, and that no request is lost or served twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llm_sim.engine_process import step_seconds
from llm_sim.scheduler import Request, Scheduler, Step


def scheduler(slots: int = 4, chunk: int = 64, kv_blocks: int = 101, block_size: int = 4) -> Scheduler:
    return Scheduler(slots, chunk, kv_blocks, block_size)


def one_step(engine: Scheduler, now: float = 0.0) -> tuple[Step, list[str]]:
    step = engine.schedule(now)
    return step, [output.request_id for output in engine.complete(step)]


def test_a_partial_prefill_yields_no_output_and_takes_blocks() -> None:
    engine = scheduler()
    engine.add(Request("long", prompt_tokens=150, max_tokens=2))
    usages = []
    outputs = []
    for _ in range(3):
        outputs.append(one_step(engine)[1])
        usages.append(engine.take_stats().kv_usage)
    assert outputs == [[], [], ["long"]]
    assert usages == [0.16, 0.32, 0.38]


def test_running_requests_come_first_and_the_rest_of_the_budget_goes_to_a_prefill() -> None:
    engine = scheduler(chunk=10)
    engine.add(Request("decoding", prompt_tokens=3, max_tokens=50))
    one_step(engine)
    engine.add(Request("prompt", prompt_tokens=30, max_tokens=1))
    step, outputs = one_step(engine)
    assert step.tokens == {"decoding": 1, "prompt": 9}
    assert (step.prefill_tokens, step.decodes, outputs) == (9, 1, ["decoding"])
    assert step_seconds(step, prefill_rate=9.0, decode_rate=10.0) == 1.1


def test_no_more_run_than_there_are_slots() -> None:
    engine = scheduler(slots=2)
    for name in "abc":
        engine.add(Request(name, prompt_tokens=2, max_tokens=2))
    assert one_step(engine)[1] == ["a", "b"]
    stats = engine.take_stats()
    assert (stats.running, stats.waiting) == (2, 1)
    assert one_step(engine)[1] == ["a", "b"]
    assert one_step(engine)[1] == ["c"]


def test_an_abort_leaves_one_empty_step_that_refreshes_the_gauges() -> None:
    engine = scheduler()
    engine.add(Request("gone", prompt_tokens=2, max_tokens=20))
    one_step(engine)
    engine.abort(["gone"])
    assert engine.has_work
    step, outputs = one_step(engine)
    assert (step.tokens, outputs, engine.has_work) == ({}, [], False)
    assert step_seconds(step, 1.0, 1.0) == 0
    assert engine.take_stats().kv_usage == 0


def test_the_youngest_is_preempted_when_blocks_run_out_and_finishes_later() -> None:
    engine = scheduler(kv_blocks=11, block_size=2)
    engine.add(Request("old", prompt_tokens=9, max_tokens=6))
    engine.add(Request("young", prompt_tokens=9, max_tokens=6))
    produced: list[str] = []
    preemptions = 0
    while engine.has_work:
        produced += one_step(engine)[1]
        preemptions += engine.take_stats().preemptions
    assert preemptions == 1
    assert produced.count("old") == produced.count("young") == 6
    assert produced.index("young") < produced.index("old") or produced[0] == "old"
    assert produced[-1] == "young"


@given(
    requests=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 40), st.integers(0, 30)), min_size=1, max_size=25),
    slots=st.integers(1, 6),
    chunk=st.integers(1, 80),
    kv_blocks=st.integers(35, 80),
    aborted=st.sets(st.integers(0, 24), max_size=5),
)
def test_every_request_gets_exactly_its_tokens_unless_it_was_aborted(
    requests: list[tuple[int, int, int]], slots: int, chunk: int, kv_blocks: int, aborted: set[int]
) -> None:
    engine = scheduler(slots, chunk, kv_blocks)
    produced = dict.fromkeys(map(str, range(len(requests))), 0)
    pending = sorted(enumerate(requests), key=lambda item: item[1][2])
    steps = 0
    while pending or engine.has_work:
        while pending and pending[0][1][2] <= steps:
            number, (prompt, tokens, _) = pending.pop(0)
            engine.add(Request(str(number), prompt, tokens))
        if steps == 12:
            engine.abort(map(str, aborted))
        step = engine.schedule(float(steps))
        assert sum(step.tokens.values()) <= chunk
        for output in engine.complete(step):
            produced[output.request_id] += 1
        stats = engine.take_stats()
        assert stats.running <= slots
        assert 0 <= stats.kv_usage <= 1
        steps += 1
        assert steps < 20_000
    for number, (_, tokens, _) in enumerate(requests):
        assert produced[str(number)] == tokens or (number in aborted and produced[str(number)] < tokens)
