"""Hysteresis and hold, breaker and shares: properties over any input."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from llm_heartbeat.breaker import Breaker, may_leave
from llm_heartbeat.limits import Limit

_values = st.one_of(st.none(), st.floats(0, 300))


@given(st.lists(st.tuples(st.floats(0.01, 20), _values), max_size=200), st.floats(0, 60))
def test_changes_are_at_least_hold_apart(steps: list[tuple[float, float | None]], hold: float) -> None:
    limit, now, changes = Limit(100, 80, hold), 0.0, []
    before = False
    for pause, value in steps:
        now += pause
        after = limit.observe(now, value)
        if after and not before:
            assert value is not None
            assert value >= 100
        if before and not after:
            assert value is None or value <= 80
        if after != before:
            changes.append(now)
        before = after
    assert all(b - a >= hold * (1 - 1e-9) for a, b in pairwise(changes))


def test_an_oscillating_queue_does_not_flap() -> None:
    """Ten minutes of a queue that swings through the limit every second: out once, and it stays out."""
    limit, changes = Limit(100, 80, 10), 0
    for second in range(600):
        before = limit.tripped
        changes += limit.observe(second, 150 if second % 2 else 60) != before
    assert changes == 1
    assert not all(limit.observe(600 + s, 60) for s in range(11))


def test_it_trips_at_once_and_clears_after_the_hold() -> None:
    limit = Limit(100, 80, 10)
    assert not limit.observe(0, 99)
    assert limit.observe(1, 100)
    assert limit.observe(2, 79)
    assert limit.observe(11.9, 79)
    assert not limit.observe(12, 79)
    assert not limit.observe(13, 120)  # held
    assert limit.observe(22, 120)


def test_between_the_marks_nothing_changes() -> None:
    limit = Limit(100, 80, 1)
    limit.observe(0, 100)
    assert all(limit.observe(t, 90) for t in range(1, 100))


def test_a_broken_sensor_takes_nobody_out() -> None:
    limit = Limit(100, 80, 10)
    assert not limit.observe(0, None)
    limit.observe(1, 200)
    assert not [limit.observe(t, None) for t in range(2, 13)][-1]


@given(st.lists(st.booleans(), max_size=100), st.floats(0, 0.999))
def test_breaker_opens_and_closes_by_its_counts_alone(results: list[bool], jitter: float) -> None:
    breaker = Breaker(every=10)
    for n, answered in enumerate(results):
        was = breaker.open
        breaker.record(answered)
        if breaker.open and not was:
            assert results[n - 2 : n + 1] == [False] * 3
        if was and not breaker.open:
            assert results[n - 1 : n + 1] == [True] * 2
        assert 8 <= breaker.pause(jitter) <= 72


def test_an_open_breaker_asks_less_and_less() -> None:
    breaker = Breaker(every=1, longest=60)
    pauses = []
    for _ in range(12):
        breaker.record(False)
        pauses.append(breaker.pause(0.5))
    assert pauses == [1, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60]
    breaker.record(True)
    assert breaker.open
    breaker.record(True)
    assert not breaker.open


def test_the_share_that_may_leave_is_about_the_share_and_monotone() -> None:
    names = [f"vllm-{n}" for n in range(400)]
    out = {share: {n for n in names if may_leave("db", n, share)} for share in (0.0, 0.25, 0.5, 1.0)}
    assert out[0.0] == set()
    assert out[1.0] == set(names)
    assert out[0.25] < out[0.5]
    assert 60 <= len(out[0.25]) <= 140
