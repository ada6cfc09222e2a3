"""What the heartbeat's middleware costs a request: `python benchmarks/middleware.py`.

Side by side in one run, in turns, so that a busy machine is busy for all: no middleware, ours, a middleware that does
nothing, and starlette-exporter if it is installed. The smallest of many rounds counts. The application answers at once,
without a network: what is measured is the middleware alone. Then the event loop's own lag with and without the heartbeat.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "heartbeat"))

from llm_heartbeat import Heartbeat, Middleware, Settings

App = Callable[[Any, Any, Any], Awaitable[None]]
LIMIT_US = 5.0

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}
BODY = {"type": "http.response.body", "body": b"ok"}


async def application(scope: Any, receive: Any, send: Any) -> None:
    await send(START)
    await send(BODY)


class Nothing:
    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)


async def receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def send(message: dict[str, Any]) -> None:
    pass


def scope(path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
        "state": {},
    }


async def microseconds_a_request(app: App, requests: int) -> float:
    request = scope("/v1/chat/completions")
    began = time.perf_counter_ns()
    for _ in range(requests):
        await app(request, receive, send)
    return (time.perf_counter_ns() - began) / requests / 1000


def starlette_exporter() -> App | None:
    try:
        from prometheus_client import REGISTRY  # noqa: F401
        from starlette.applications import Starlette
        from starlette_exporter import PrometheusMiddleware
    except ImportError:
        return None
    made: App = PrometheusMiddleware(application, app_name="bench", group_paths=False)
    # It looks its application up in the scope; routes are none.
    inner = Starlette()

    async def with_app(scope: Any, receive: Any, send: Any) -> None:
        scope["app"] = inner
        await made(scope, receive, send)

    return with_app


async def costs(rounds: int, requests: int) -> dict[str, list[float]]:
    heartbeat = Heartbeat(Settings(handle_sigterm=False))
    apps: dict[str, App] = {
        "no middleware": application,
        "a middleware that does nothing": Nothing(application),
        "llm_heartbeat.Middleware": Middleware(application, heartbeat),
        "the same with a drain limit": Middleware(application, Heartbeat(Settings(handle_sigterm=False, drain_limit=60))),
    }
    other = starlette_exporter()
    if other is not None:
        apps["starlette-exporter"] = other
    found: dict[str, list[float]] = {name: [] for name in apps}
    for name in apps:
        await microseconds_a_request(apps[name], requests // 10)
    gc.disable()
    for _ in range(rounds):
        for name, app in apps.items():
            found[name].append(await microseconds_a_request(app, requests))
    gc.enable()
    heartbeat.stop()
    return found


async def lag(seconds: float) -> list[float]:
    """Delays of a 5 ms timer, milliseconds."""
    delays = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        due = time.monotonic() + 0.005
        await asyncio.sleep(0.005)
        delays.append((time.monotonic() - due) * 1000)
    return delays


async def lags(seconds: float) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"without": [], "with the heartbeat": []}
    for _ in range(4):
        found["without"] += await lag(seconds / 4)
        heartbeat = Heartbeat(Settings(handle_sigterm=False))
        heartbeat.start()
        found["with the heartbeat"] += await lag(seconds / 4)
        heartbeat.stop()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--lag-seconds", type=float, default=8.0)
    options = parser.parse_args()
    found = asyncio.run(costs(options.rounds, options.requests))
    base = min(found["no middleware"])
    ours = min(found["llm_heartbeat.Middleware"]) - base
    print("| | µs a request | added | against ours |")
    print("|---|---|---|---|")
    for name, times in found.items():
        added = min(times) - base
        print(f"| {name} | {min(times):.2f} | {added:.2f} | {added / ours:.1f}x |")
    if "starlette-exporter" not in found:
        print("starlette-exporter is not installed: pip install starlette-exporter")
    print()
    for name, delays in asyncio.run(lags(options.lag_seconds)).items():
        cuts = statistics.quantiles(delays, n=100)
        print(f"loop lag {name}: median {statistics.median(delays):.3f} ms, p99 {cuts[98]:.3f} ms, {len(delays)} timers")
    print(f"\n{'below' if ours < LIMIT_US else 'ABOVE'} {LIMIT_US:g} µs a request")
    return 0 if ours < LIMIT_US else 1


if __name__ == "__main__":
    raise SystemExit(main())
