"""Every recording of a real engine says what its row in the table says."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from llm_exporter.judge import Settings, State
from llm_exporter.pipeline import Seen
from llm_exporter.recording import lines_of
from llm_exporter.replay import replay

RECORDINGS = Path(__file__).parents[1] / "recordings"

IMPATIENT = Settings(
    interval=1, stalled_after=4, stuck_after=10, stuck_after_blind=30, start_grace=0, confirm=False, idle_canary=False
)
"""The table's configuration."""

IDLE_BUSY_IDLE = ["idle", "busy", "idle"]

ROWS: dict[str, tuple[list[list[str]], set[str]]] = {
    "vllm-idle-busy-idle": ([IDLE_BUSY_IDLE], {"stalled", "stuck", "unknown"}),
    "vllm-engine-core-stopped-while-busy": (
        [["idle", "busy", "stalled", "stuck", "busy", "idle"]],
        {"unknown", "down", "failed"},
    ),
    "vllm-long-prefill": ([IDLE_BUSY_IDLE], {"stuck", "unknown"}),
    "vllm-clients-abort-while-busy": ([IDLE_BUSY_IDLE], {"stuck", "unknown"}),
    "vllm-engine-stopped-while-idle-then-requests": ([["idle"]], {"stuck", "busy"}),
    "vllm-api-server-stopped": ([["idle", "busy", "unreachable", "busy", "idle"]], {"down", "stuck"}),
    "vllm-engine-core-killed": ([["idle", "busy", "down"], ["idle", "busy", "failed", "down"]], {"stuck", "unreachable"}),
    "vllm-sigterm-while-busy": ([["idle", "busy", "down"]], {"stuck", "unreachable", "starting"}),
    "vllm-startup": ([["down", "idle"]], {"busy", "starting", "unknown"}),
    "vllm-data-parallel-startup": ([["down", "idle"]], {"busy", "starting", "unknown"}),
    "vllm-log-stats-disabled": ([["unknown"]], {"idle", "busy", "stuck"}),
    "vllm-two-api-servers-busy": ([IDLE_BUSY_IDLE], {"stuck", "unknown"}),
    "vllm-with-loop-lag-middleware": ([IDLE_BUSY_IDLE], {"stuck", "unknown"}),
    "llamacpp-idle-busy-idle": ([IDLE_BUSY_IDLE], {"stalled", "stuck", "unknown"}),
    "llamacpp-long-prefill": ([IDLE_BUSY_IDLE], {"stuck", "unknown"}),
    "llamacpp-process-stopped-while-busy": ([["idle", "busy", "unreachable", "busy", "idle"]], {"down", "stuck"}),
}  # fmt: skip


def judged(name: str, settings: Settings = IMPATIENT) -> list[Seen]:
    return list(replay(lines_of(RECORDINGS / f"{name}.jsonl.gz"), settings))


def states(seen: list[Seen]) -> list[str]:
    return [state for state, _ in groupby(s.verdict.state.value for s in seen)]


@pytest.mark.parametrize("name", sorted(ROWS))
def test_the_states_follow_what_was_done(name: str) -> None:
    allowed, never = ROWS[name]
    said = states(judged(name))
    assert said in allowed
    assert not never & set(said)


def test_a_minute_of_solo_prefill_is_at_most_briefly_stalled() -> None:
    seen = judged("vllm-solo-long-prefill")
    said = states(seen)
    assert said[:2] == ["idle", "busy"]
    assert said[-1] == "idle"
    assert set(said) <= {"idle", "busy", "stalled"}
    assert max(s.verdict.lanes[0].stalled_seconds for s in seen) < 8, "far from the bound of 10"


def test_every_recording_has_a_row() -> None:
    on_disk = {path.name.removesuffix(".jsonl.gz") for path in RECORDINGS.glob("*.jsonl.gz")}
    assert on_disk == {*ROWS, "vllm-solo-long-prefill"}


def test_a_stopped_engine_is_stalled_and_stuck_at_its_bounds_and_busy_when_it_goes_on() -> None:
    seen = judged("vllm-engine-core-stopped-while-busy")
    first = {state: next(s.look.t for s in seen if s.verdict.state is state) for state in (State.STALLED, State.STUCK)}
    back = next(s.look.t for s in seen if s.look.t > first[State.STUCK] and s.verdict.state is State.BUSY)
    assert first[State.STALLED] == pytest.approx(11, abs=1.5)
    assert first[State.STUCK] == pytest.approx(17, abs=1.5)
    assert back == pytest.approx(27, abs=1.5)
    assert {s.observation.health for s in seen} == {200}, "its /health lies all the time"


def test_an_idle_that_metrics_cannot_prove_is_never_called_verified() -> None:
    for s in judged("vllm-engine-stopped-while-idle-then-requests"):
        assert "not verified" in s.verdict.reason
        assert s.verdict.lanes[0].verified_at is None


def test_missing_engine_series_are_named() -> None:
    for s in judged("vllm-log-stats-disabled"):
        assert "vllm:iteration_tokens_total_count" in s.verdict.reason
        assert "--disable-log-stats" in s.verdict.reason


def test_a_server_without_a_start_time_is_judged_all_the_same() -> None:
    seen = judged("vllm-two-api-servers-busy")
    assert {s.observation.incarnation for s in seen} == {None}
    assert not any(s.verdict.restarted for s in seen)


def test_the_heartbeats_lag_is_read_from_the_engines_own_page() -> None:
    seen = judged("vllm-with-loop-lag-middleware")
    assert all(s.observation.loop is not None for s in seen)


def test_a_solo_prefill_says_that_the_kv_cache_moves() -> None:
    assert any("prefill: KV cache" in s.verdict.reason for s in judged("vllm-solo-long-prefill"))


def test_replay_is_deterministic() -> None:
    first, second = (judged("vllm-long-prefill") for _ in range(2))
    assert [s.verdict for s in first] == [s.verdict for s in second]
