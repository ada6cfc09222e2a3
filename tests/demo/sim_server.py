"""A real simulated server on a loopback port of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp

from loopback import free_port

DEMO = Path(__file__).parent.parent.parent / "demo"
_T = TypeVar("_T")


async def until(look: Callable[[], Awaitable[_T]], good: Callable[[_T], bool], within: float = 20.0) -> _T:
    """Look again and again until what is seen is good; fails with the last sight at the deadline."""
    deadline = time.monotonic() + within
    while True:
        seen = await look()
        if good(seen):
            return seen
        assert time.monotonic() < deadline, f"still {str(seen)[:500]} after {within} s"
        await asyncio.sleep(0.01)


class SimServer:
    """``async with SimServer(tmp_path, "--slots", "4") as server``: loaded on entry, gone on exit."""

    def __init__(self, directory: Path, *options: str, wait: bool = True) -> None:
        self._options = options
        self._wait = wait
        self._pids_file = directory / "pids.json"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True, limit=0))
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "llm_sim", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--load-seconds", "0", "--pids-file", str(self._pids_file), *self._options),
            env={**os.environ, "PYTHONPATH": str(DEMO)},
        )
        if self._wait:
            status = await until(self.health, lambda status: status == 200 or self.process.returncode is not None)
            if status != 200:
                await self.session.close()
            assert status == 200, "the simulated server ended while it started; see its standard error"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self.session.close()

    async def health(self) -> int | str:
        """The status of /health, or what went wrong."""
        return await self._status("/health")

    async def _status(self, path: str) -> int | str:
        try:
            async with self.session.get(self.url + path, timeout=aiohttp.ClientTimeout(total=1)) as answer:
                return answer.status
        except aiohttp.ClientConnectorError:
            return "refused"
        except TimeoutError:
            return "timeout"
        except aiohttp.ClientConnectionError:
            return "reset"

    async def get(self, path: str) -> Any:
        async with self.session.get(self.url + path) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def page(self) -> str:
        async with self.session.get(f"{self.url}/metrics") as answer:
            assert answer.status == 200
            return await answer.text()

    def ask(
        self, prompt_tokens: int, max_tokens: int, headers: dict[str, str] | None = None
    ) -> asyncio.Task[tuple[int, dict[str, Any]]]:
        """Send a completion in the background."""
        return asyncio.create_task(self.post({"prompt": [1] * prompt_tokens, "max_tokens": max_tokens}, headers))

    async def post(
        self, body: object, headers: dict[str, str] | None = None, path: str = "/v1/completions"
    ) -> tuple[int, dict[str, Any]]:
        async with self.session.post(self.url + path, json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def signal_engine(self, number: signal.Signals, rank: int = 0) -> None:
        """Signal the engine process, and wait until a stop has come into effect."""
        pid = (await self.get("/debug/pids"))["engines"][rank]
        os.kill(pid, number)
        if number == signal.SIGSTOP:
            await until(lambda: _process_state(pid), lambda state: state == "T")


async def _process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
