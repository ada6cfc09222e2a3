"""Essential dependencies: cached, short, behind a breaker, and never the end of all replicas at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from llm_heartbeat import Heartbeat, Settings
from llm_heartbeat.dependencies import ANSWERED, FAILED, NOT_JUDGED, Dependency, from_url, parse
from llm_heartbeat.faults import Faults


def dependency(check: Callable[[], Awaitable[object]], timeout: float = 0.2) -> Dependency:
    return Dependency("db", check, timeout=timeout, every=10, share=1.0, replica="r", faults=Faults())


class Service:
    """A TCP server that answers HTTP, or accepts and stays silent; it counts who asks."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.silent = False
        self.status = "200 OK"
        self.port = 0
        self._open: set[asyncio.StreamWriter] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append(time.monotonic())
        self._open.add(writer)
        await reader.readline()
        if not self.silent:
            writer.write(f"HTTP/1.1 {self.status}\r\nContent-Length: 0\r\n\r\n".encode())
            writer.close()

    def close(self) -> None:
        for writer in self._open:
            writer.close()


@asynccontextmanager
async def service() -> AsyncIterator[Service]:
    own = Service()
    listening = await asyncio.start_server(own.handle, "127.0.0.1", 0)
    own.port = listening.sockets[0].getsockname()[1]
    try:
        yield own
    finally:
        own.close()
        listening.close()
        await listening.wait_closed()
        await asyncio.sleep(0)


async def test_http_and_tcp_checks_against_a_real_server() -> None:
    async with service() as db:
        for scheme in ("http", "tcp"):
            found = dependency(from_url(f"{scheme}://127.0.0.1:{db.port}/healthz?x=1"))
            assert await found.look() == ANSWERED
        db.status = "503 Service Unavailable"
        found = dependency(from_url(f"http://127.0.0.1:{db.port}"))
        assert await found.look() == FAILED
        assert "503 Service Unavailable" in found.reason
        db.silent = True
        found = dependency(from_url(f"http://127.0.0.1:{db.port}"))
        assert await found.look() == FAILED
        assert found.reason == "no answer within 0.2 s"
        port = db.port
    found = dependency(from_url(f"tcp://127.0.0.1:{port}"))
    assert await found.look() == FAILED
    assert "ConnectionRefusedError" in found.reason


async def test_a_timeout_that_our_own_late_loop_made_is_not_judged() -> None:
    async def slow() -> None:
        time.sleep(0.5)  # the loop is blocked, not the dependency
        await asyncio.sleep(1)

    found = dependency(slow)
    assert await found.look() == NOT_JUDGED
    assert found.breaker.failed_in_a_row == 0


async def test_one_answer_does_not_close_the_breaker_and_the_reason_says_so() -> None:
    answers = iter([False, False, False, True, True])
    own = Heartbeat(Settings(handle_sigterm=False, dependency_may_leave=1.0))

    async def check() -> bool:
        return next(answers)

    own.essential("db", check)
    own.loaded()
    reasons = []
    for _ in range(5):
        await own.dependencies["db"].look()
        reasons.append(own.report("ready").reason)
    assert reasons == ["", "", "db: the check returned False", "db: answers again, not yet for long", ""]


async def test_one_failure_is_none_three_are() -> None:
    async def refuse() -> bool:
        return False

    found = dependency(refuse)
    downs = []
    for _ in range(3):
        await found.look()
        downs.append(found.down)
    assert downs == [False, False, True]
    assert found.since is not None
    assert found.reason == "the check returned False"


@pytest.mark.parametrize("text", ["db=ftp://x:1", "db=tcp://x", "db", "=", "db=http://"])
def test_a_wrong_dependency_is_a_problem(text: str) -> None:
    checks, problems = parse(f"{text},ok=tcp://127.0.0.1:1")
    assert list(checks) == ["ok"]
    assert problems[0].startswith("LLM_HEARTBEAT_DEPENDENCIES: ")


async def replicas_when_the_service_goes_silent(share: float, count: int = 20) -> tuple[list[Heartbeat], int, float]:
    """Replicas with one dependency that is slow for all of them: who is ready, and how often it was asked, in how long."""
    async with service() as db:
        replicas = []
        for n in range(count):
            settings = Settings(handle_sigterm=False, replica=f"vllm-{n}", dependencies=f"db=http://127.0.0.1:{db.port}")
            own = Heartbeat(settings)
            check = from_url(f"http://127.0.0.1:{db.port}")
            own.essential("db", check, timeout=0.05, every=0.1, may_leave=share)
            replicas.append(own)
            own.start()
            own.serving()
        async with asyncio.timeout(15):
            while any(d.dependencies["db"].counts[ANSWERED] == 0 for d in replicas):
                await asyncio.sleep(0.01)
        assert all(own.report("ready").status == "ok" for own in replicas)
        db.silent = True
        async with asyncio.timeout(15):
            while not all(own.dependencies["db"].down for own in replicas):
                await asyncio.sleep(0.01)
        db.asked.clear()
        began = time.monotonic()
        await asyncio.sleep(2)
        asked, seconds = len(db.asked), time.monotonic() - began
        for own in replicas:
            own.stop()
        return replicas, asked, seconds


async def test_avalanche_nobody_leaves_by_default() -> None:
    replicas, asked, seconds = await replicas_when_the_service_goes_silent(share=0.0)
    for own in replicas:
        ready = own.report("ready")
        assert (ready.code, ready.status, ready.degraded) == (200, "degraded", ("dependency_db",))
        assert ready.reason == "db: no answer within 0.05 s"
        assert own.report("live").code == 200
    # Healthy, 20 replicas would ask 200 times a second; the open breakers double their pauses.
    assert asked <= 20 * 5 * seconds / 2


async def test_avalanche_as_configured_a_share_leaves() -> None:
    replicas, _, _ = await replicas_when_the_service_goes_silent(share=0.3)
    out = [own for own in replicas if own.report("ready").code == 503]
    assert 0 < len(out) < 10
    assert {own.report("ready").failed for own in out} == {("dependency_db",)}
    assert all(own.report("live").code == 200 for own in replicas)


async def test_avalanche_as_configured_all_leave() -> None:
    replicas, _, _ = await replicas_when_the_service_goes_silent(share=1.0)
    assert all(own.report("ready").failed == ("dependency_db",) for own in replicas)


def test_twenty_replicas_ask_a_dead_service_at_a_bounded_rate() -> None:
    """An hour in virtual time: 20 breakers with the defaults against a service that never answers."""
    from llm_heartbeat.breaker import Breaker

    asked = 0
    for n in range(20):
        breaker, now = Breaker(every=10), n * 0.1
        while now < 3600:
            asked += 1
            breaker.record(False)
            now += breaker.pause((n * 37 % 20) / 20)
    assert asked / 3600 < 0.5  # a second, all together; healthy it is 2
