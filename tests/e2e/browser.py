"""A real Chromium, headless, driven over its own debugging protocol; no driver or library between."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import pytest

DEADLINE = 30.0
_PAGE_WENT = (
    "Inspected target navigated or closed",
    "Execution context was destroyed",
    "Cannot find context with specified id",
)


class NavigatedError(Exception):
    """The page was replaced by another one while it was asked: the question has no answer, ask the new page."""


class Page:
    """One tab. `errors` has what the browser complained about: scripts, blocked or failed resources."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self.errors: list[str] = []

    async def listen(self) -> None:
        """Take what the browser says until the tab closes."""
        async for message in self._socket:
            said = message.json()
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            elif said["method"] == "Page.loadEventFired":
                self._loaded.set()
            elif said["method"] == "Log.entryAdded" and said["params"]["entry"]["level"] in ("error", "warning"):
                self.errors.append(said["params"]["entry"]["text"])
            elif said["method"] == "Runtime.exceptionThrown":
                self.errors.append(str(said["params"]["exceptionDetails"]))

    async def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """One command of the protocol."""
        number = next(self._numbers)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = future
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        answer = await asyncio.wait_for(future, DEADLINE)
        if answer.get("error", {}).get("message") in _PAGE_WENT:
            raise NavigatedError(method)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def open(self, url: str) -> None:
        """Load a page and wait until it is there."""
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), DEADLINE)

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression is in the page; asked again of the new page if it was just replaced."""
        while True:
            try:
                return await self._evaluate(expression)
            except NavigatedError:
                await asyncio.sleep(0.05)

    async def until(self, expression: str) -> None:
        """Wait until an expression is true in the page."""
        end = time.monotonic() + DEADLINE
        while not await self.value(expression):
            assert time.monotonic() < end, f"{expression} did not come true"
            await asyncio.sleep(0.05)

    async def follow(self, element: str) -> None:
        """A click that leads to another page, waited for."""
        before = await self.value("performance.timeOrigin")
        with suppress(NavigatedError):
            await self._evaluate(f"({element}).click()")
        await self.until(f"performance.timeOrigin !== {before} && document.readyState === 'complete'")

    async def _evaluate(self, expression: str) -> Any:
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def screen(self, width: int, height: int = 900, scheme: str = "light", mobile: bool = False) -> None:
        """The size of the window and the colour scheme that the person prefers."""
        await self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def press(self, key: str) -> None:
        """A key of the keyboard."""
        text = {"Enter": "\r"}.get(key, "")
        code = {"Tab": 9, "Enter": 13}[key]
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, text=text, windowsVirtualKeyCode=code)

    async def picture(self, path: Path) -> None:
        """A screenshot as PNG."""
        answer = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))


@asynccontextmanager
async def chromium() -> AsyncIterator[Page]:
    """A tab in a browser of its own profile, ended afterwards."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with TemporaryDirectory(prefix="stuckproof-browser-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            async with aiohttp.ClientSession() as session:
                base = await _debugging_address(Path(profile) / "DevToolsActivePort", process)
                async with session.get(f"{base}/json") as response:
                    targets = await response.json(content_type=None)
                url = next(target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page")
                async with session.ws_connect(url, max_msg_size=0) as socket:
                    page = Page(socket)
                    listening = asyncio.create_task(page.listen())
                    for domain in ("Page", "Runtime", "Log"):
                        await page.call(f"{domain}.enable")
                    yield page
                    listening.cancel()
                    await asyncio.gather(listening, return_exceptions=True)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def _debugging_address(file: Path, process: subprocess.Popen[bytes]) -> str:
    end = time.monotonic() + DEADLINE
    while not file.exists() or not file.read_text().strip():
        assert process.poll() is None, "Chromium ended at once"
        assert time.monotonic() < end, "Chromium does not start"
        await asyncio.sleep(0.05)
    return f"http://127.0.0.1:{file.read_text().split()[0]}"
