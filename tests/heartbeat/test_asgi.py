"""The middleware at the level of ASGI itself: what is not ours passes as the very same objects, whatever breaks in us."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from llm_heartbeat import Heartbeat, Middleware, Settings


class App:
    """Remembers what it was called with."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.calls: list[tuple[Any, Any, Any]] = []
        self.error = error

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls.append((scope, receive, send))
        if self.error is not None:
            raise self.error


async def receive() -> MutableMapping[str, Any]:
    return {"type": "http.disconnect"}


class Sent(list[MutableMapping[str, Any]]):
    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        self.append(message)


def http(path: str, method: str = "GET", **more: Any) -> dict[str, Any]:
    return {"type": "http", "path": path, "method": method, "query_string": b"", **more}


@pytest.fixture
async def heartbeat() -> Any:
    own = Heartbeat(Settings(handle_sigterm=False))
    yield own
    own.stop()


@pytest.mark.parametrize("scope", [http("/v1/completions", "POST"), {"type": "websocket", "path": "/healthz/live"}])
async def test_everything_else_gets_the_same_objects(heartbeat: Heartbeat, scope: dict[str, Any]) -> None:
    app, send = App(), Sent()
    before = dict(scope)
    await Middleware(app, heartbeat)(scope, receive, send)
    assert app.calls == [(scope, receive, send)]
    assert all(a is b for a, b in zip(app.calls[0], (scope, receive, send), strict=True))
    assert scope == before
    assert send == []


async def test_exceptions_of_the_application_pass(heartbeat: Heartbeat) -> None:
    middleware = Middleware(App(ZeroDivisionError("theirs")), heartbeat)
    with pytest.raises(ZeroDivisionError):
        await middleware(http("/"), receive, Sent())
    with pytest.raises(ZeroDivisionError):
        await middleware({"type": "lifespan"}, receive, Sent())
    assert heartbeat.requests.count == 0


@pytest.mark.parametrize("endpoint", ["startup", "live", "ready"])
async def test_an_error_of_ours_restarts_nobody(
    heartbeat: Heartbeat, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(heartbeat, "report", broken)
    send = Sent()
    await Middleware(App(), heartbeat)(http(f"/healthz/{endpoint}"), receive, send)
    assert send[0]["status"] == 200
    assert b'"unknown"' in send[1]["body"]
    aside = heartbeat.answers.side_port(f"/healthz/{endpoint}", "")
    assert aside is not None
    assert aside[0] == 200
    assert heartbeat.faults.counts["answer"] == 2


async def test_if_we_cannot_start_the_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Heartbeat(Settings(handle_sigterm=False))

    def broken() -> None:
        raise OSError("no more threads")

    for method in ("attach", "_start_metrics", "tick"):
        monkeypatch.setattr(own, method, broken)
    app = App()
    await Middleware(app, own)(http("/"), receive, Sent())
    assert len(app.calls) == 1
    assert {"start", "metrics"} <= set(own.faults.counts)
    own.stop()


@pytest.mark.parametrize(
    ("scope", "served"),
    [
        (http("/llm/healthz/live", root_path="/llm"), True),
        (http("/healthz/live", root_path="/llm"), True),
        (http("/healthz/live", root_path=""), True),
        (http("/other/healthz/live", root_path="/llm"), False),
        (http("/healthz/lively"), False),
    ],
)
async def test_root_paths(heartbeat: Heartbeat, scope: dict[str, Any], served: bool) -> None:
    app, send = App(), Sent()
    await Middleware(app, heartbeat)(scope, receive, send)
    assert (app.calls == []) == served
    assert [m.get("status") for m in send[:1]] == ([200] if served else [])


async def test_another_prefix() -> None:
    own = Heartbeat(Settings(prefix="/probe", handle_sigterm=False))
    app, send = App(), Sent()
    await Middleware(app, own)(http("/probe/ready"), receive, send)
    await Middleware(app, own)(http("/healthz/ready"), receive, Sent())
    own.stop()
    assert send[0]["status"] == 200
    assert len(app.calls) == 1


class OutOfMemoryError(RuntimeError):
    """Named as torch's."""


async def test_an_out_of_memory_error_asks_for_a_new_warmup_if_configured() -> None:
    own = Heartbeat(Settings(rewarm_after_oom=True, handle_sigterm=False, interval=0.01))
    warmed = []

    async def warmup() -> None:
        warmed.append(1)

    own.on_warmup(warmup)
    middleware = Middleware(App(OutOfMemoryError("CUDA out of memory")), own)
    with pytest.raises(OutOfMemoryError):
        await middleware(http("/v1/completions"), receive, Sent())
    async with asyncio.timeout(10):
        while not own.report("ready").good:
            await asyncio.sleep(0.01)
    with pytest.raises(OutOfMemoryError):
        await middleware(http("/v1/completions"), receive, Sent())
    assert own.report("ready").failed == ("warming_up",)
    assert own.report("startup").code == 200
    async with asyncio.timeout(10):
        while not own.report("ready").good:
            await asyncio.sleep(0.01)
    assert len(warmed) == 2
    own.stop()


async def test_a_warmup_that_fails_is_a_failed_load() -> None:
    own = Heartbeat(Settings(handle_sigterm=False, interval=0.01))

    async def warmup() -> None:
        raise ValueError("kernel image is not for this GPU")

    own.on_warmup(warmup)
    own.start()
    own.serving()
    assert own.report("startup").status == "warming_up"
    async with asyncio.timeout(10):
        while own.report("startup").code != 500:
            await asyncio.sleep(0.01)
    assert own.report("startup").reason == "warm-up failed: ValueError: kernel image is not for this GPU"
    own.stop()
