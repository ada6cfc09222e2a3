from __future__ import annotations

import asyncio
import threading

import pytest

from llm_remediator import host_thread
from llm_remediator.host_thread import DeadlineError, HostBusyError, HostThread


async def test_results_and_errors_come_through() -> None:
    thread = HostThread("h")
    assert await thread.run("add", lambda: 1 + 1, deadline=5) == 2
    with pytest.raises(ZeroDivisionError):
        await thread.run("divide", lambda: 1 // 0, deadline=5)
    assert await thread.run("again", lambda: "fine", deadline=5) == "fine"
    thread.close()


async def test_calls_never_overlap_and_share_one_thread() -> None:
    thread = HostThread("h")
    busy, worst, seen = 0, 0, set()

    def call() -> None:
        nonlocal busy, worst
        busy += 1
        worst = max(worst, busy)
        seen.add(threading.get_ident())
        busy -= 1

    await asyncio.gather(*(thread.run("call", call, deadline=5) for _ in range(50)))
    assert worst == 1
    assert len(seen) == 1
    thread.close()


async def test_past_its_deadline_no_second_call_starts_until_it_came_back() -> None:
    thread = HostThread("h", monotonic=lambda: 42.0)
    release = threading.Event()
    started: list[str] = []

    def hang() -> None:
        started.append("hang")
        release.wait(10)

    with pytest.raises(DeadlineError, match="restart x"):
        await thread.run("restart x", hang, deadline=0.02)
    assert thread.overdue_since == 42.0
    for _ in range(3):
        with pytest.raises(HostBusyError, match="restart x"):
            await thread.run("second", lambda: started.append("second"), deadline=0.02)
    assert started == ["hang"]
    release.set()
    async with asyncio.timeout(5):
        while thread.overdue_since is not None:
            await asyncio.sleep(0.001)
    assert await thread.run("third", lambda: "works", deadline=5) == "works"
    thread.close()


async def test_a_cancelled_caller_leaves_the_host_busy_not_hung() -> None:
    thread = HostThread("h")
    release, began = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        release.wait(10)

    task = asyncio.create_task(thread.run("restart", hang, deadline=60))
    await asyncio.to_thread(began.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(HostBusyError):
        await thread.run("second", lambda: None, deadline=0.02)
    assert thread.overdue_since is None
    release.set()
    async with asyncio.timeout(5):
        while thread.out is not None:
            await asyncio.sleep(0.001)
    await thread.run("third", lambda: None, deadline=5)
    thread.close()


async def test_a_look_does_not_wait_long_behind_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_thread, "TURN_BEHIND_ACT", 0.02)
    thread = HostThread("h")
    release = threading.Event()
    restart = asyncio.create_task(thread.run("restart x", lambda: release.wait(10), deadline=60, act=True))
    await asyncio.sleep(0)
    with pytest.raises(HostBusyError, match="restart x"):
        await thread.run("inspect", lambda: None, deadline=20)
    release.set()
    assert await restart is True
    thread.close()


async def test_a_restart_waits_its_turn_behind_slow_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_thread, "TURN_BEHIND_ACT", 0.001)
    thread = HostThread("h")
    release = threading.Event()
    looks = [asyncio.create_task(thread.run("look", lambda: release.wait(10), deadline=60)) for _ in range(10)]
    await asyncio.sleep(0)
    restart = asyncio.create_task(thread.run("restart", lambda: "done", deadline=5, act=True))
    done, _ = await asyncio.wait({restart}, timeout=0.05)
    assert not done, "it waits for longer than a look would wait behind it"
    release.set()
    assert await restart == "done"
    await asyncio.gather(*looks)
    thread.close()
