"""What must never happen, whatever the engine and the network do."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from llm_exporter.engines import Look, Page
from llm_exporter.judge import CanaryOutcome, Facts, History, LaneEvidence, Observation, Settings, State, Verdict, judge
from llm_exporter.pipeline import Mind, step

PATIENCE = Settings(interval=10, stalled_after=30, stuck_after=60, start_grace=0, confirm=False)
FAILURES = ["refused", "timeout", "reset", "dns", "tls", "noroute", "other", "loading"]


@dataclass(frozen=True)
class Tick:
    """One look of a made-up life: seconds since the look before, steps made, work held, how the look ended."""

    after: float
    steps: int
    running: int
    waiting: int
    fate: str


ticks = st.builds(
    Tick,
    after=st.sampled_from([10.0, 10.0, 10.0, 20.0, 45.0]),
    steps=st.sampled_from([0, 0, 0, 1, 7]),
    running=st.integers(0, 3),
    waiting=st.integers(0, 3),
    fate=st.sampled_from(["ok"] * 8 + ["partial", "empty", *FAILURES]),
)
lives = st.lists(ticks, min_size=1, max_size=40)


def observation(tick: Tick, t: float, steps: int, lane: str = "0") -> Observation:
    if tick.fate in FAILURES:
        return Observation(unix=1e9 + t, reach=tick.fate, detail="failed")  # type: ignore[arg-type]
    if tick.fate == "empty":
        return Observation(unix=1e9 + t, reach="answered", detail="empty page")
    evidence = LaneEvidence(lane, {"steps": float(steps)}, float(tick.running), float(tick.waiting), steps=float(steps))
    if tick.fate == "partial":
        evidence = replace(evidence, progress={}, missing=("steps",))
    return Observation(unix=1e9 + t, reach="answered", facts=Facts("made-up"), lanes=(evidence,), incarnation="1")


def live(life: list[Tick], patience: Settings = PATIENCE, scale: float = 1.0) -> list[tuple[Tick, float, int, Verdict]]:
    history, t, steps, said = History(), 0.0, 1, []
    for tick in life:
        t += tick.after * scale
        steps += tick.steps
        history, verdict = judge(history, observation(tick, t, steps), t, patience)
        said.append((tick, t, steps, verdict))
    return said


@given(lives)
def test_a_failed_or_partial_look_never_yields_idle_or_stuck(life: list[Tick]) -> None:
    for tick, _, _, verdict in live(life):
        if tick.fate != "ok":
            assert verdict.state not in (State.IDLE, State.STUCK, State.BUSY, State.STALLED)
            assert verdict.progress is None


@given(lives)
def test_progress_within_the_bound_never_yields_stuck(life: list[Tick]) -> None:
    good: list[tuple[float, int]] = []
    for tick, t, steps, verdict in live(life):
        if tick.fate == "ok":
            good.append((t, steps))
        if verdict.state is State.STUCK:
            moved = [b[0] for a, b in itertools.pairwise(good) if a[1] != b[1]]
            assert not moved or t - moved[-1] >= 60
            assert t - good[0][0] >= 60, "never before a full bound of own observation"
            assert tick.running + tick.waiting > 0, "never without held work or silent canaries"


@given(lives)
def test_stuck_needs_a_watched_stretch(life: list[Tick]) -> None:
    """No gap longer than the limit lies inside the flat stretch that a stuck verdict claims."""
    good: list[float] = []
    for tick, t, _, verdict in live(life):
        if tick.fate == "ok":
            good.append(t)
        if verdict.state is State.STUCK:
            since = verdict.lanes[0].flat_since
            assert since is not None
            inside = [at for at in good if at >= since]
            assert all(b - a <= PATIENCE.longest_gap for a, b in itertools.pairwise(inside))


@given(lives)
def test_replay_is_deterministic(life: list[Tick]) -> None:
    assert [v for *_, v in live(life)] == [v for *_, v in live(life)]


@given(lives, st.sampled_from([2.0, 3.0, 10.0]))
def test_scaling_time_scales_the_verdicts(life: list[Tick], scale: float) -> None:
    slow = Settings(interval=10 * scale, stalled_after=30 * scale, stuck_after=60 * scale, starved_after=600 * scale,
                    canary_every=900 * scale, start_grace=0, confirm=False)  # fmt: skip
    assert [v.state for *_, v in live(life)] == [v.state for *_, v in live(life, slow, scale)]


@given(st.lists(st.tuples(ticks, ticks), min_size=1, max_size=25))
def test_the_order_of_lanes_changes_nothing(lives_of_two: list[tuple[Tick, Tick]]) -> None:
    verdicts = []
    for turned in (False, True):
        history, t, steps, said = History(), 0.0, [1, 1], []
        for pair in lives_of_two:
            t += pair[0].after
            lanes = []
            for i, tick in enumerate(pair):
                steps[i] += tick.steps
                lanes.append(LaneEvidence(str(i), {"s": float(steps[i])}, float(tick.running), float(tick.waiting)))
            seen = Observation(
                unix=1e9 + t, reach="answered", lanes=tuple(lanes[::-1] if turned else lanes), incarnation="1"
            )
            history, verdict = judge(history, seen, t, PATIENCE)
            said.append((verdict.state, {(v.lane, v.state, v.reason) for v in verdict.lanes}))
        verdicts.append(said)
    assert verdicts[0] == verdicts[1]


@given(lives)
def test_no_canary_is_asked_for_while_work_moves(life: list[Tick]) -> None:
    patience = replace(PATIENCE, confirm=True)
    for tick, _, _, verdict in live(life, patience):
        if verdict.wants is not None:
            held = tick.running + tick.waiting
            assert tick.fate == "ok"
            assert (verdict.wants.kind == "idle") == (held == 0)
            if held:
                assert verdict.state is State.STALLED
                assert verdict.lanes[0].stalled_seconds >= 60


@given(lives)
def test_without_an_answer_to_the_last_question_nothing_is_stuck(life: list[Tick]) -> None:
    for *_, verdict in live(life, replace(PATIENCE, confirm=True)):
        assert verdict.state is not State.STUCK


@given(st.lists(st.sampled_from(["silent", "answered", "http", "refused", "reset", "none"]), min_size=1, max_size=6))
def test_only_silence_confirms(results: list[str]) -> None:
    history, t = History(), 0.0
    patience = replace(PATIENCE, confirm=True)
    tick = Tick(10, 0, 2, 0, "ok")
    queue = list(results)
    outcome: CanaryOutcome | None = None
    told: list[str] = []
    for _ in range(80):
        t += 10
        seen = replace(observation(tick, t, 5), canary=outcome)
        if outcome is not None:
            told.append(outcome.result)
        outcome = None
        history, verdict = judge(history, seen, t, patience)
        if verdict.state is State.STUCK:
            assert told[-1] == "silent"
        if verdict.wants is not None and queue:
            outcome = CanaryOutcome(verdict.wants.kind, queue.pop(0), t, 9.0, status=401)  # type: ignore[arg-type]


page_bytes = st.one_of(
    st.text(max_size=400),
    st.lists(
        st.sampled_from([
            'vllm:num_requests_running{engine="0",model_name="m"} 0.0', 'vllm:num_requests_waiting{engine="0"} 0',
            "vllm:iteration_tokens_total_count{", 'vllm:generation_tokens_total{engine="0"} 1e3', "# EOF", "vllm:x NaN",
            'llamacpp:n_decode_total 12', "llamacpp:requests_processing", "{}", '"', 'a{b="}"} 1',
        ])
    ).map("\n".join),
)  # fmt: skip


@given(page_bytes)
@settings(max_examples=300)
def test_no_page_crashes_the_reader_and_no_broken_page_is_idle(body: str) -> None:
    mind = Mind.of("auto")
    _, seen = step(mind, Look(0.0, 1e9, Page(status=200, body=body), Page(status=200)), Settings())
    if seen.verdict.state is State.IDLE:
        lane = seen.observation.lanes[0]
        assert lane.progress, "idle needs the step series"
        assert (lane.running is not None and lane.waiting is not None) or not any(lane.progress.values())


@given(st.binary(max_size=600))
def test_fuzzed_bytes_never_crash_it_and_never_give_idle(raw: bytes) -> None:
    page = Page(status=200, body=raw.decode("utf-8", "replace"))
    _, seen = step(Mind.of("vllm"), Look(0.0, 1e9, page, None), Settings())
    assert seen.verdict.state is State.UNKNOWN
