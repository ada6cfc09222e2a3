"""Whatever breaks in us or around us, the server goes on, and the fault is counted."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from prometheus_client.registry import Collector

from llm_heartbeat import Heartbeat, Settings, metrics, peers

QUICK = Settings(handle_sigterm=False, interval=0.01, blocked_after=0.1, ready_queue=5, poll=0.1)


@pytest.fixture
async def running() -> Any:
    own = Heartbeat(QUICK)
    yield own
    own.stop()


async def until(probe: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not probe():
            await asyncio.sleep(0.01)


@pytest.fixture
def broken_logging() -> Iterator[None]:
    def broken(_: logging.LogRecord) -> bool:
        raise RuntimeError("a filter of the application")

    logger = logging.getLogger("llm_heartbeat")
    logger.addFilter(broken)
    yield
    logger.removeFilter(broken)


@pytest.mark.usefixtures("broken_logging")
async def test_logging_that_raises(running: Heartbeat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_HEARTBEAT_HOLD", "soon")
    Heartbeat()  # logs what is wrong with the options
    running.start()
    running.serving()  # logs the change
    assert running.report("ready").good
    running.source("queue", lambda: 9)
    await until(lambda: running.report("ready").failed == ("queue_full",))
    assert running.faults.counts["watchdog"] == 0


async def test_a_registry_that_raises(running: Heartbeat, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(metrics, "family", full)
    warmed = asyncio.Event()

    async def warm() -> None:
        warmed.set()

    running.on_warmup(warm)
    running.source("queue", lambda: 9)
    running.start()
    running.serving()
    await asyncio.wait_for(warmed.wait(), 10)
    await until(lambda: running.report("ready").failed == ("queue_full",))
    assert running.faults.counts["metrics"] > 0
    assert running.faults.counts["beat"] == running.faults.counts["watchdog"] == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_the_watchdogs_thread_dies(running: Heartbeat) -> None:
    def find_watchdog() -> list[threading.Thread]:
        return [t for t in threading.enumerate() if t.name == "llm-heartbeat-watchdog"]

    running.start()
    tick, died = running.tick, threading.Event()

    def deadly(*arguments: Any) -> None:
        if not died.is_set():
            died.set()
            raise SystemExit
        tick(*arguments)

    running.tick = deadly  # type: ignore[method-assign]
    await until(died.is_set)
    await until(lambda: running.faults.counts["watchdog"] == 1)
    running.source("queue", lambda: 9)
    await until(lambda: "queue_full" in running.report("ready").failed)
    assert len(find_watchdog()) == 1


async def test_no_thread_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Heartbeat(Settings(handle_sigterm=False, listen="127.0.0.1:0", ready_queue=5))

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        own.start()
        own.serving()
        assert own.report("ready").good
        assert own.listening is None
        assert {"watchdog", "side_port"} <= set(own.faults.counts)
        own.stop()
    own.start()
    assert own.listening is not None
    own.stop()


@pytest.mark.parametrize("value", [float("nan"), "many", [1], object()])
async def test_a_source_of_the_application_that_returns_nonsense(running: Heartbeat, value: Any) -> None:
    running.source("queue", lambda: 9)
    running.source("kv", lambda: value)
    running.start()
    running.serving()
    await until(lambda: running.report("ready").failed == ("queue_full",))
    assert running.report("ready").checks["kv_cache_ratio"] is None
    assert running.faults.counts["watchdog"] == 0


async def test_a_check_of_the_application_that_is_cancelled_within(running: Heartbeat) -> None:
    async def check() -> None:
        raise asyncio.CancelledError

    running.start()
    running.essential("db", check, every=0.01)  # in a lifespan: the loop runs already
    running.serving()
    await until(lambda: running.report("ready").degraded)
    assert running.report("ready").reason == "db: the check was cancelled"


async def test_what_is_registered_again_replaces_the_former(running: Heartbeat) -> None:
    asked = []

    def check(name: str) -> Callable[[], Any]:
        async def ask() -> None:
            asked.append(name)

        return ask

    running.start()
    running.essential("db", check("first"), every=0.01)
    running.source("queue", lambda: 1)
    await until(lambda: asked)
    running.essential("db", check("second"), every=0.01)
    running.source("queue", lambda: 2)
    await until(lambda: "second" in asked)
    asked.clear()
    await until(lambda: len(asked) > 3)
    assert set(asked) == {"second"}
    assert [t.name for t in threading.enumerate()].count("llm-heartbeat-queue") <= 2
    await until(lambda: running.report("ready").checks["queue_depth"] == 2)


async def test_a_collector_of_the_application_that_raises(running: Heartbeat) -> None:
    class Broken(Collector):
        def __init__(self) -> None:
            self.broken = False

        def collect(self) -> Any:
            if self.broken:
                raise RuntimeError("theirs")
            return []

    theirs = Broken()
    REGISTRY.register(theirs)
    theirs.broken = True
    try:
        answer = running.answers.side_port("/metrics", "")
    finally:
        REGISTRY.unregister(theirs)
    assert answer is not None
    assert answer[0] == 500
    assert running.faults.counts["metrics"] == 1


async def test_the_dead_are_buried_even_if_nobody_asks(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    own = Heartbeat(Settings(handle_sigterm=False, interval=0.01, state_dir=str(tmp_path)))
    replace(peers.Snapshot.of(own), pid=dead.pid).write(tmp_path)
    gauges = tmp_path / f"gauge_livemax_{dead.pid}.db"
    gauges.touch()
    own.start()
    await until(lambda: not gauges.exists())
    await until(lambda: [p.name for p in tmp_path.iterdir()] == [f"llm_heartbeat_{os.getpid()}.json"])
    own.stop()


async def test_the_meeting_place_is_made_or_its_absence_is_a_fault(tmp_path: Path) -> None:
    for place, faults in ((tmp_path / "new" / "place", 0), (Path("/proc/nowhere"), 1)):
        own = Heartbeat(Settings(handle_sigterm=False, state_dir=str(place)))
        own.start()
        assert own.faults.counts["peers"] == faults
        own.stop()
    assert (tmp_path / "new" / "place").is_dir()


async def test_a_handler_that_wraps_ours_still_reaches_the_servers() -> None:
    reached: list[str] = []
    former = signal.signal(signal.SIGTERM, lambda *_: reached.append("server"))
    try:
        own = Heartbeat(Settings())
        own.start()
        ours: Any = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda *frame: (reached.append("wrapper"), ours(*frame)))
        own.stop()
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, former)
    assert reached == ["wrapper", "server"]
