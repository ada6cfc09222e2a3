"""Every recording in ``tests/recordings-more`` says what its row in the README says, canaries included."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest

from llm_exporter.judge import Settings, State
from llm_exporter.pipeline import Seen
from llm_exporter.recording import lines_of
from llm_exporter.replay import replay as replay_of

RECORDINGS = Path(__file__).parents[1] / "recordings-more"

ASKING = Settings(
    interval=1,
    stalled_after=4,
    stuck_after=10,
    stuck_after_blind=30,
    start_grace=0,
    confirm=True,
    idle_canary=True,
    canary_every=4,
    canary_timeout=3,
)

HUNG = ["idle", "busy", "stalled", "stuck", "busy"]
ROWS: dict[str, list[list[str]]] = {
    "vllm-engine-stopped-while-busy-canary-silent": [HUNG],
    "vllm-engine-stopped-with-one-request": [HUNG],
    "vllm-worker-stopped-while-busy": [HUNG],
    "vllm-two-api-servers-engine-stopped-while-busy": [HUNG],
    "vllm-engine-stopped-while-idle-canaries-silent": [["idle", "stuck"], ["idle", "stuck", "idle"]],
    "vllm-restarted-while-busy": [["idle", "busy", "down", "idle", "busy"]],
    "vllm-restarted-between-two-looks": [["idle", "busy"]],
    "vllm-killed-while-idle": [["idle", "failed", "down"]],
    "vllm-api-key": [["idle", "busy", "stalled", "busy"]],
    "vllm-saturated": [["idle", "busy", "idle"]],
    "vllm-0.9.1-clients-abort-gauges-stay": [["idle", "busy", "stalled", "idle"]],
    "vllm-0.9.1-solo-long-prefill": [["idle"], ["idle", "stalled", "idle"]],
    "vllm-paused": [["idle", "busy", "sleeping", "busy"], ["idle", "sleeping", "busy"]],
    "vllm-data-parallel-one-rank-stopped-while-busy": [HUNG],
    "vllm-data-parallel-idle-one-rank-stopped": [["idle", "stuck"], ["idle", "stuck", "idle"]],
    "llamacpp-engine-thread-frozen-while-busy": [HUNG],
    "llamacpp-engine-thread-frozen-while-idle": [["idle", "unreachable", "idle", "busy"]],
    "llamacpp-slow-batches": [["idle", "busy", "stalled", "busy", "stalled", "busy", "stalled", "busy", "stalled", "idle"]],
    "llamacpp-restarted-while-busy": [["idle", "busy", "down", "busy"]],
    "llamacpp-terminated-while-busy": [["idle", "busy", "down"]],
    "llamacpp-saturated": [["idle", "busy", "idle"], ["idle", "unreachable", "busy", "idle"]],
    "llamacpp-loading": [["down", "starting", "idle"]],
    "llamacpp-sleeping": [["idle", "sleeping", "idle"]],
    "llamacpp-api-key-missing": [["unknown"]],
    "llamacpp-without-metrics": [["unknown"]],
    "llamacpp-router": [["unknown"]],
    "llamacpp-router-model": [["sleeping", "busy"]],
}


# Its prefill outlasts the blind bound of seconds that the other rows use; the real one is 15 minutes.
PATIENT = {"vllm-0.9.1-solo-long-prefill": replace(ASKING, stuck_after_blind=60)}


def judged(name: str) -> list[Seen]:
    return list(replay_of(lines_of(RECORDINGS / f"{name}.jsonl.gz"), PATIENT.get(name, ASKING)))


def states(seen: list[Seen], lane: str | None = None) -> list[str]:
    lanes = [{found.lane: found.state for found in s.verdict.lanes} for s in seen]
    said = [s.verdict.state if lane is None else of.get(lane, s.verdict.state) for s, of in zip(seen, lanes, strict=True)]
    return [state.value for state, _ in groupby(said)]


def canary_times(name: str) -> list[tuple[float, str, str | None]]:
    """End, result and lane of each recorded canary."""
    found = [record for record in lines_of(RECORDINGS / f"{name}.jsonl.gz") if "canary" in record]
    return [(r["t"] + r["canary"]["seconds"], r["canary"]["result"], r["canary"].get("lane")) for r in found]


@pytest.mark.parametrize("name", sorted(ROWS))
def test_the_states_follow_what_was_done(name: str) -> None:
    assert states(judged(name)) in ROWS[name]


def test_every_recording_has_a_row_here_and_in_the_readme() -> None:
    on_disk = {path.name.removesuffix(".jsonl.gz") for path in RECORDINGS.glob("*.jsonl.gz")}
    readme = (RECORDINGS / "README.md").read_text()
    assert on_disk == set(ROWS)
    assert on_disk == {
        line.split("|")[1].strip() for line in readme.splitlines() if line.startswith(("| vllm-", "| llamacpp-"))
    }


def test_recordings_are_small() -> None:
    assert all(path.stat().st_size < 150_000 for path in RECORDINGS.glob("*.jsonl.gz"))


@pytest.mark.parametrize("name", sorted(name for name, rows in ROWS.items() if rows == [HUNG]))
def test_a_hang_is_stuck_only_after_its_canary_was_silent(name: str) -> None:
    stuck = next(s.look.t for s in judged(name) if s.verdict.state is State.STUCK)
    silent = [end for end, result, lane in canary_times(name) if result == "silent" and lane in (None, "1")]
    assert silent[0] <= stuck


@pytest.mark.parametrize(
    "name", ["vllm-engine-stopped-while-idle-canaries-silent", "vllm-data-parallel-idle-one-rank-stopped"]
)
def test_one_silent_idle_canary_is_not_enough(name: str) -> None:
    stuck = next(s.look.t for s in judged(name) if s.verdict.state is State.STUCK)
    silent = [end for end, result, _ in canary_times(name) if result == "silent"]
    assert len(silent) >= 2
    assert silent[1] <= stuck


@pytest.mark.parametrize(
    "name", ["vllm-data-parallel-one-rank-stopped-while-busy", "vllm-data-parallel-idle-one-rank-stopped"]
)
def test_the_other_rank_is_never_suspected(name: str) -> None:
    seen = judged(name)
    assert set(states(seen, "0")) <= {"idle", "busy"}
    assert "stuck" in states(seen, "1")


@pytest.mark.parametrize(
    "name", ["vllm-restarted-while-busy", "vllm-restarted-between-two-looks", "llamacpp-restarted-while-busy"]
)
def test_a_restart_is_seen_once(name: str) -> None:
    assert sum(s.verdict.restarted for s in judged(name)) == 1


def test_the_observation_begins_anew_after_a_restart_that_no_look_saw() -> None:
    seen = judged("vllm-restarted-between-two-looks")
    (after,) = (s for s in seen if s.verdict.restarted)
    assert after.verdict.state is State.BUSY
    assert after.verdict.progress is None


def test_canaries_that_wait_behind_a_prefill_nobody_can_see_prove_nothing_before_the_blind_bound() -> None:
    name = "vllm-0.9.1-solo-long-prefill"
    assert [result for _, result, _ in canary_times(name)].count("silent") >= 3
    assert all(not s.observation.facts.sighted for s in judged(name))
    assert "stuck" not in states(judged(name))


def test_a_slow_decode_stretches_the_bound_of_the_next() -> None:
    bounds = [s.verdict.lanes[0].bound for s in judged("llamacpp-slow-batches") if s.verdict.state is State.STALLED]
    seconds = [bound.seconds for bound in bounds if bound is not None]
    assert seconds == sorted(seconds)
    assert seconds[-1] > 60 > ASKING.stuck_after_blind


def test_an_answered_canary_clears_gauges_that_were_left_behind() -> None:
    seen = judged("vllm-0.9.1-clients-abort-gauges-stay")
    asked = [s for s in seen if s.verdict.wants is not None and s.verdict.wants.kind == "confirm"]
    assert asked
    assert asked[0].verdict.held == 3
    assert seen[-1].verdict.lanes[0].verified_at is not None


def test_an_answered_canary_verifies_idle() -> None:
    seen = judged("vllm-engine-stopped-while-idle-canaries-silent")
    assert any(s.verdict.lanes and s.verdict.lanes[0].verified_at is not None for s in seen)


def test_a_canary_that_may_not_ask_cannot_confirm() -> None:
    reasons = [s.verdict.reason for s in judged("vllm-api-key") if s.verdict.state is State.STALLED]
    assert any("cannot confirm: 401" in reason for reason in reasons)


@pytest.mark.parametrize("name", ["vllm-saturated", "llamacpp-saturated"])
def test_no_canary_is_asked_for_while_busy(name: str) -> None:
    assert not [s for s in judged(name) if s.verdict.state is State.BUSY and s.verdict.wants is not None]


def test_no_canary_to_a_sleeper_nor_to_one_that_was_seen_asleep() -> None:
    seen = judged("llamacpp-sleeping")
    first = next(index for index, s in enumerate(seen) if s.verdict.state is State.SLEEPING)
    assert [s.verdict.wants for s in seen[first:]] == [None] * len(seen[first:])


@pytest.mark.parametrize("name", ["vllm-paused", "llamacpp-router-model"])
def test_no_canary_to_what_is_paused_or_not_loaded(name: str) -> None:
    assert not [s for s in judged(name) if s.verdict.state is State.SLEEPING and s.verdict.wants is not None]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("llamacpp-api-key-missing", ["401", "bearer_token_file"]),
        ("llamacpp-without-metrics", ["501", "--metrics"]),
        ("llamacpp-router", ["400", "/metrics?model="]),
    ],
)
def test_what_cannot_be_judged_names_its_mend(name: str, words: list[str]) -> None:
    for s in judged(name):
        assert all(word in s.verdict.reason for word in words), s.verdict.reason


def test_a_hang_that_hides_the_page_says_what_health_does() -> None:
    reasons = [
        s.verdict.reason for s in judged("llamacpp-engine-thread-frozen-while-idle") if s.verdict.state is State.UNREACHABLE
    ]
    assert reasons
    assert all("/health answers 200" in reason for reason in reasons)
