"""One thread per host that blocking calls run on, one at a time, with deadlines that never lie.

A blocking call cannot be cancelled. When one is out past its deadline the host counts as hung: no
second call is started on it until the first came back, for a second restart could be a second kill.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
TURN = 60.0
"""Seconds to wait for the calls before ours, all of them looks: a slow daemon with many targets."""
TURN_BEHIND_ACT = 5.0
"""The same behind a restart, which may take minutes: a look that waited for it would be old anyway."""
log = logging.getLogger("llm.remediator.docker")


class HostBusyError(Exception):
    """The call was never started: another one on this host is still out."""


class DeadlineError(Exception):
    """The call was started and is still out: it may or may not take effect."""


class HostThread:
    """Runs blocking calls for one host. Must be used from one event loop.

    The thread is a daemon: a call that never returns does not keep the process from ending.
    """

    def __init__(self, name: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._monotonic = monotonic
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._turn = asyncio.Lock()
        self._acting = False
        self._out: str | None = None
        self._overdue_since: float | None = None

    @property
    def overdue_since(self) -> float | None:
        """Monotonic time since which a call is out past its deadline, None if none is."""
        return self._overdue_since

    @property
    def out(self) -> str | None:
        """What the thread is doing, in words."""
        return self._out

    async def run(self, what: str, call: Callable[[], T], *, deadline: float, act: bool = False) -> T:
        """Run `call` on the thread; `what` names it for messages, `deadline` in seconds bounds the call.
        `act`: it may take minutes, and nobody shall queue up behind it.

        Raises what `call` raises, `HostBusyError` before it starts, `DeadlineError` after.
        """
        try:
            async with asyncio.timeout(TURN_BEHIND_ACT if self._acting else TURN):
                await self._turn.acquire()
        except TimeoutError:
            raise HostBusyError(f"still busy with: {self._out or 'another call'}") from None
        try:
            if self._out is not None:
                raise HostBusyError(f"waiting for a call that has not come back: {self._out}")
            self._acting = act
            return await self._start(what, call, deadline)
        finally:
            self._acting = False
            self._turn.release()

    async def _start(self, what: str, call: Callable[[], T], deadline: float) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._out = what
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"host-{self._name}", daemon=True)
            self._thread.start()

        def job() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = call()
            except BaseException as exc:  # noqa: BLE001 - handed to the awaiting side as it is
                error = exc
            try:
                loop.call_soon_threadsafe(self._came_back, what, future, result, error)
            except RuntimeError:
                log.warning("answer came after shutdown", extra={"host": self._name, "call": what})

        self._jobs.put(job)
        try:
            done, _ = await asyncio.wait({future}, timeout=deadline)
        except asyncio.CancelledError:
            future.cancel()
            raise
        if not done:
            future.cancel()
            self._overdue_since = self._monotonic()
            raise DeadlineError(f"{what}: no answer within {deadline:g} s")
        return future.result()

    def _came_back(self, what: str, future: asyncio.Future[T], result: T | None, error: BaseException | None) -> None:
        self._out = self._overdue_since = None
        if future.cancelled():
            log.warning("call came back late: %s", error or "done", extra={"host": self._name, "call": what})
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def close(self) -> None:
        """End the thread once its call, if any, is back."""
        self._jobs.put(None)
