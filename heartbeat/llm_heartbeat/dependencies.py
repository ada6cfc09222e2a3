"""Essential dependencies: checked in the background, briefly, cached, jittered, behind a circuit breaker.

Readiness reads the cached result. Liveness never looks at them.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from llm_heartbeat.breaker import Breaker, may_leave
from llm_heartbeat.faults import Faults

Check = Callable[[], Awaitable[object]]

ANSWERED, FAILED, NOT_JUDGED = "answered", "failed", "not_judged"


class Dependency:
    """One dependency. Down is what the breaker says, never a single failure."""

    def __init__(
        self, name: str, check: Check, *, timeout: float, every: float, share: float, replica: str, faults: Faults
    ) -> None:
        self.name = name
        self.leaves = may_leave(name, replica, share)
        self.breaker = Breaker(every)
        self.reason = ""
        self.since: float | None = None
        self.counts = {ANSWERED: 0, FAILED: 0, NOT_JUDGED: 0}
        self._check = check
        self._timeout = timeout
        self._faults = faults
        self._task: asyncio.Task[None] | None = None

    @property
    def down(self) -> bool:
        """Whether the breaker is open."""
        return self.breaker.open

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check in the background of that loop."""
        self._task = loop.create_task(self._run(), name=f"llm-heartbeat-{self.name}")

    def stop(self) -> None:
        """End the background checks; in the loop's thread."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        await asyncio.sleep(self.breaker.every * random.random() * 0.2)  # replicas start together; their checks need not
        while True:
            with self._faults.passed_by(f"dependency_{self.name}"):
                await self.look()
            await asyncio.sleep(self.breaker.pause(random.random()))

    async def look(self) -> str:
        """One check. A time-out that our own late loop may have caused is not judged."""
        began = time.monotonic()
        was_down = self.down
        result = await self._ask()
        if result == FAILED and time.monotonic() - began > 1.5 * self._timeout + 0.05:
            result = NOT_JUDGED
        self.counts[result] += 1
        if result != NOT_JUDGED:
            self.breaker.record(result == ANSWERED)
        if self.down != was_down:
            self.since = time.time()
        return result

    async def _ask(self) -> str:
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._check()
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise  # we are stopped
            self.reason = "the check was cancelled"  # by itself: it awaited something that was
            return FAILED
        except TimeoutError:
            self.reason = f"no answer within {self._timeout:g} s"
            return FAILED
        except Exception as error:  # noqa: BLE001 - a check is the application's code: whatever it raises is "not there"
            self.reason = f"{type(error).__name__}: {error}"
            return FAILED
        if answer is False:
            self.reason = "the check returned False"
            return FAILED
        self.reason = ""
        return ANSWERED


def from_url(url: str) -> Check:
    """A check for `tcp://host:port` (connects) or `http[s]://host/path` (status below 500). ValueError otherwise."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    if parts.scheme not in ("tcp", "http", "https") or not parts.hostname or not port:
        raise ValueError(f"{url!r} is neither tcp://host:port nor http://host/path")
    host = parts.hostname

    async def connect() -> None:
        _, writer = await asyncio.open_connection(host, port)
        writer.close()

    async def get() -> None:
        reader, writer = await asyncio.open_connection(host, port, ssl=parts.scheme == "https" or None)
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            request = f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n"
            writer.write(request.encode())
            line = (await reader.readline()).split(b" ", 2)
        finally:
            writer.close()
        if len(line) < 2 or not line[1].isdigit() or int(line[1]) >= 500:
            raise ConnectionError(f"answered {b' '.join(line).decode(errors='replace').strip()!r}")

    return connect if parts.scheme == "tcp" else get


def parse(text: str) -> tuple[dict[str, Check], list[str]]:
    """`name=url,name=url` as checks, and what was wrong."""
    checks: dict[str, Check] = {}
    problems = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, url = item.partition("=")
        try:
            checks[name.strip()] = from_url(url.strip())
        except ValueError as error:
            problems.append(f"LLM_HEARTBEAT_DEPENDENCIES: {name}: {error}")
    return checks, problems
