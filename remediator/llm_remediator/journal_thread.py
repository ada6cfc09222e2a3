"""One thread owns the journal; what waits together is committed together, and answered after the fsync."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from llm_remediator.journal_store import JournalLockedError, JournalStore
from llm_remediator.service import StoreError

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
_BATCH = 256


class JournalThread:
    """Runs functions of a connection in order. A result means: committed and on disk.

    `fault` is empty while the journal works; a fault that can pass (a full disk) is tried again with
    every call.
    """

    def __init__(self, path: str) -> None:
        self._store = JournalStore(path)
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)

    @property
    def fault(self) -> str:
        """Why nothing can be stored, or the empty string."""
        return self._store.fault

    def start(self) -> None:
        """Open the file. `JournalLockedError` if another process owns it; any other trouble is a fault."""
        with contextlib.suppress(StoreError):  # kept as `fault`, which every gate and the web server look at
            self._store.connection()
        self._thread.start()

    async def run(self, work: Work[T]) -> T:
        """Run `work` inside a transaction; returns once it is durable. `StoreError` if it cannot be."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._queue.put(_Job(work, loop, future))
        result: T = await future
        return result

    def close(self) -> None:
        """Finish what is queued, then close the file."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(timeout=10.0)
        self._store.close()

    def _work(self) -> None:
        while True:
            first = self._queue.get()
            jobs = [first]
            while len(jobs) < _BATCH and not self._queue.empty():
                jobs.append(self._queue.get())
            batch = [job for job in jobs if job is not None]
            if batch:
                self._commit(batch)
            if len(batch) < len(jobs):
                return

    def _commit(self, jobs: list[_Job]) -> None:
        try:
            connection = self._store.connection()
            connection.execute("BEGIN IMMEDIATE")
            for job in jobs:
                job.run(connection)
            connection.execute("COMMIT")
        except StoreError as error:
            failure: Exception = error
        except sqlite3.Error as error:
            failure = self._store.failed_by(error)
        except (JournalLockedError, OSError) as error:
            failure = self._store.failed(str(error))
        else:
            for job in jobs:
                job.deliver()
            return
        for job in jobs:
            job.fail(failure)


class _Job:
    """One function, and who waits for it."""

    def __init__(self, work: Work[Any], loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> None:
        self._work = work
        self._loop = loop
        self._future = future
        self._value: Any = None
        self._error: Exception | None = None

    def run(self, connection: sqlite3.Connection) -> None:
        """Run inside a savepoint: what one job does wrong must not undo its neighbours."""
        connection.execute("SAVEPOINT job")
        try:
            self._value = self._work(connection)
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001 - handed to whoever asked, not swallowed
            connection.execute("ROLLBACK TO job")
            self._error = error
        connection.execute("RELEASE job")

    def deliver(self) -> None:
        """Hand the result over, now that it is durable."""
        self._finish(self._error)

    def fail(self, error: Exception) -> None:
        """Nothing of this batch was stored."""
        self._finish(StoreError(str(error)))

    def _finish(self, error: Exception | None) -> None:
        def settle() -> None:
            if self._future.done():
                return
            if error is not None:
                self._future.set_exception(error)
            else:
                self._future.set_result(self._value)

        try:
            self._loop.call_soon_threadsafe(settle)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more
