"""The product's own judge says the same of the simulated server as of the real one, state by state.

The simulated scenes run five times as fast as the recorded ones, and are written down with time stretched by five, so that
both are judged with the bounds of the recordings' README.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from demo.recorded import RECORDINGS
from demo.sim_server import SimServer
from llm_exporter.judge import Settings
from llm_exporter.replay import replay

SPEED = 5.0
TIMEOUT = 1.5
JUDGED_WITH = Settings(
    interval=1.0,
    stalled_after=4.0,
    stuck_after=10.0,
    stuck_after_blind=30.0,
    start_grace=0.0,
    confirm=False,
    idle_canary=False,
)
DECODING = (
    "--decode-tokens-per-second",
    "80",
    "--prefill-tokens-per-second",
    "50000",
    "--block-size",
    "2",
    "--kv-blocks",
    "30000",
)
LONG = ("--chunk", "64", "--prefill-tokens-per-second", "260", "--decode-tokens-per-second", "80")

Scene = Callable[[SimServer], Awaitable[None]]


def states(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """The verdicts' states without repetitions.

    A pause that ends in work again belongs to the work, a look between a death and the closed port belongs to the port.
    """
    told: list[str] = []
    for state, _ in groupby(seen.verdict.state.value for seen in replay(records, JUDGED_WITH)):
        if state == "busy" and told[-2:] == ["busy", "stalled"]:
            told.pop()
        elif state == "down" and told[-1:] in (["failed"], ["unreachable"]):
            told[-1] = state
        else:
            told.append(state)
    return told


def recorded(name: str) -> list[Mapping[str, Any]]:
    with gzip.open(RECORDINGS / f"{name}.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


async def observe(server: SimServer, scene: Scene) -> list[Mapping[str, Any]]:
    """Poll the server while the scene is played, in the recordings' format."""
    records: list[Mapping[str, Any]] = []
    began, unix = time.monotonic(), time.time()
    playing = asyncio.ensure_future(scene(server))
    looks = 0
    while not playing.done():
        t = (time.monotonic() - began) * SPEED
        metrics, health = await fetch(server, "/metrics"), await fetch(server, "/health")
        records.append({"t": t, "unix": unix + t, "metrics": metrics, "health": health})
        looks += 1
        await asyncio.sleep(max(0.0, began + looks / SPEED - time.monotonic()))
    await playing
    return records


async def fetch(server: SimServer, path: str) -> Mapping[str, Any]:
    began = time.monotonic()
    try:
        async with server.session.get(server.url + path, timeout=aiohttp.ClientTimeout(total=TIMEOUT)) as answer:
            body = await answer.text()
            return {"status": answer.status, "body": body, "seconds": time.monotonic() - began}
    except aiohttp.ClientConnectorError as error:
        return {"error": str(error), "kind": "refused", "seconds": 0.0}
    except aiohttp.ClientConnectionError as error:
        return {"error": str(error), "kind": "reset", "seconds": 0.0}
    except TimeoutError:
        return {"error": "TimeoutError", "kind": "timeout", "seconds": TIMEOUT}


async def stretched(seconds: float) -> None:
    """Wait so many seconds of the recording's time."""
    await asyncio.sleep(seconds / SPEED)


async def work_comes_and_goes(server: SimServer) -> None:
    await stretched(4)
    await asyncio.gather(*(server.ask(60, 200) for _ in range(4)))
    await stretched(4)


async def engine_stopped_while_busy(server: SimServer) -> None:
    await stretched(2)
    requests = [server.ask(60, 200) for _ in range(4)]
    await stretched(5)
    await server.signal_engine(signal.SIGSTOP)
    await stretched(20)
    await server.signal_engine(signal.SIGCONT)
    await asyncio.gather(*requests)
    await stretched(3)


async def long_prefill(server: SimServer) -> None:
    await stretched(3)
    await server.ask(1600, 40)
    await stretched(4)


async def clients_leave(server: SimServer) -> None:
    await stretched(2)
    requests = [server.ask(60, 2000) for _ in range(4)]
    await stretched(5)
    for request in requests:
        request.cancel()
    await asyncio.gather(*requests, return_exceptions=True)
    await stretched(8)


async def engine_stopped_while_idle(server: SimServer) -> None:
    await stretched(3)
    await server.signal_engine(signal.SIGSTOP)
    await stretched(3)
    requests = [server.ask(60, 5) for _ in range(3)]
    await stretched(12)
    await server.signal_engine(signal.SIGCONT)
    await asyncio.gather(*requests)
    await stretched(2)


async def api_process_stopped(server: SimServer) -> None:
    await stretched(2)
    requests = [server.ask(60, 400) for _ in range(2)]
    await stretched(3)
    server.process.send_signal(signal.SIGSTOP)
    await stretched(16)
    server.process.send_signal(signal.SIGCONT)
    await asyncio.gather(*requests)
    await stretched(4)


async def engine_killed(server: SimServer) -> None:
    await stretched(2)
    requests = [server.ask(60, 2000) for _ in range(2)]
    await stretched(4)
    await server.signal_engine(signal.SIGKILL)
    await asyncio.gather(*requests)
    await stretched(14)


async def terminated_while_busy(server: SimServer) -> None:
    await stretched(1)
    requests = [server.ask(60, 2000) for _ in range(6)]
    await stretched(5)
    server.process.terminate()
    await asyncio.gather(*requests, return_exceptions=True)
    await stretched(14)


@pytest.mark.parametrize(
    ("recording", "options", "scene"),
    [
        ("vllm-idle-busy-idle", DECODING, work_comes_and_goes),
        ("vllm-engine-core-stopped-while-busy", DECODING, engine_stopped_while_busy),
        ("vllm-solo-long-prefill", LONG, long_prefill),
        ("vllm-clients-abort-while-busy", DECODING, clients_leave),
        ("vllm-engine-stopped-while-idle-then-requests", DECODING, engine_stopped_while_idle),
        ("vllm-api-server-stopped", DECODING, api_process_stopped),
        ("vllm-engine-core-killed", DECODING, engine_killed),
        ("vllm-sigterm-while-busy", DECODING, terminated_while_busy),
    ],
)
async def test_the_same_states_in_the_same_order(
    tmp_path: Path, recording: str, options: tuple[str, ...], scene: Scene
) -> None:
    real = states(recorded(recording))
    async with SimServer(tmp_path, *options) as server:
        simulated = states(await observe(server, scene))
    assert simulated == real
