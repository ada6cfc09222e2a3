"""Lag bookkeeping with injected time: peaks, blocks, what was witnessed."""

import threading
import time
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_heartbeat import culprit
from llm_heartbeat.lag import Beats, Block, BlockWatch, LagWindow


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 10)), max_size=60), st.floats(0, 80))
def test_window_equals_the_plain_maximum(steps: list[tuple[float, float]], wait: float) -> None:
    window, now, seen = LagWindow(30), 0.0, []
    for pause, delay in steps:
        now += pause
        window.add(now, delay)
        seen.append((now, delay))
    now += wait
    assert window.largest(now) == max((d for t, d in seen if t >= now - 30), default=0.0)


def test_one_block_is_one_delay() -> None:
    beats = Beats(interval=0.1, due=0.1, blocked_after=1.0)
    assert beats.beat(0.1) == 0
    assert beats.beat(5.2) == pytest.approx(5.0)
    assert beats.beat(5.3) == pytest.approx(0.0)
    assert list(beats.late) == [(1, pytest.approx(5.0))]


@dataclass
class Watched:
    """A loop and its watchdog on one clock."""

    beats: Beats = field(default_factory=lambda: Beats(0.1, 0.1, 1.0))
    watch: BlockWatch = field(default_factory=BlockWatch)
    now: float = 0.0

    def run(self, seconds: float, beating: bool, looking: bool = True) -> tuple[int, list[Block]]:
        captures, ended = 0, []
        for _ in range(round(seconds / 0.05)):
            self.now += 0.05
            if beating and self.now >= self.beats.due:
                self.beats.beat(self.now)
            if looking:
                capture, blocks = self.watch.look(self.now, self.beats)
                captures += capture
                ended += blocks
        return captures, ended


def test_a_block_is_captured_once_and_reported_at_its_end() -> None:
    server = Watched()
    assert server.run(5, beating=True) == (0, [])
    assert server.run(10, beating=False) == (1, [])
    assert server.watch.stuck_seconds == pytest.approx(9.9, abs=0.2)
    captures, ended = server.run(1, beating=True)
    assert captures == 0
    assert [b.seen for b in ended] == [True]
    assert ended[0].seconds == pytest.approx(9.9, abs=0.2)
    assert server.watch.stuck_seconds == 0


def test_time_that_nobody_saw_is_not_stuck() -> None:
    """SIGSTOP, a suspended machine: at the first look after it the heartbeat is 600 s old, and nothing is wrong."""
    server = Watched()
    server.run(5, beating=True)
    server.run(600, beating=False, looking=False)
    capture, _ = server.watch.look(server.now, server.beats)
    assert capture
    assert server.watch.stuck_seconds <= server.watch.longest_look
    assert server.watch.watching_since == server.now


def test_without_a_loop_it_still_watches_for_the_others() -> None:
    watch = BlockWatch()
    for tick in range(10):
        assert watch.look(100 + tick * 0.25, None) == (False, ())
    assert watch.watching_since == 100
    watch.look(900, None)
    assert watch.watching_since == 900


def test_a_block_without_witness_is_still_counted() -> None:
    """A C call that held the GIL, when the loop was quicker to wake than the watchdog."""
    server = Watched()
    server.run(5, beating=True)
    server.run(4, beating=False, looking=False)
    server.beats.beat(server.now)
    captures, ended = server.run(1, beating=True)
    assert (captures, [b.seen for b in ended]) == (0, [False])


def test_the_culprit_is_the_innermost_frame_outside_the_standard_library() -> None:
    gate = threading.Event()

    def wait_in_the_library() -> None:
        gate.wait(20)

    thread = threading.Thread(target=wait_in_the_library)
    thread.start()
    found = None
    end = time.monotonic() + 10
    while (found is None or "wait_in" not in found.function) and time.monotonic() < end:
        found = culprit.capture(thread.ident or 0, at=1.0, blocked_seconds=2.0)
    gate.set()
    thread.join()
    assert found is not None
    assert found.function.endswith("wait_in_the_library")
    assert found.file == __file__
    assert found.label == f"test_lag.{found.function}"
    assert "wait" in found.stack[-1]
    assert "threading.py" in found.stack[-1]


def test_no_culprit_in_a_thread_that_ended() -> None:
    assert culprit.capture(-1, 0, 0) is None
