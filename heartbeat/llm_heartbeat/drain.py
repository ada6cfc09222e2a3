"""SIGTERM: note it, then let the server's own handler run (after a delay, if one is asked for)."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class SigtermHook:
    """Stands before the handler that is installed already (uvicorn's, asyncio's) and always hands over to it."""

    def __init__(self, on_term: Callable[[], None], delay: float) -> None:
        self._on_term = on_term
        self._delay = delay
        self._before: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._termed = False
        self._pid = os.getpid()

    def install(self, loop: asyncio.AbstractEventLoop) -> bool:
        """False where it cannot be: not the main thread, or a handler that Python cannot call."""
        if threading.current_thread() is not threading.main_thread():
            return False
        before = signal.getsignal(signal.SIGTERM)
        if before is None or before == self._handle:
            return before is not None
        self._before, self._loop = before, loop
        signal.signal(signal.SIGTERM, self._handle)
        return True

    def remove(self) -> None:
        """Put the former handler back, unless somebody has replaced ours since; they may still call it."""
        mine = signal.getsignal(signal.SIGTERM) == self._handle
        if mine and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # A signal handler interrupts anything, locks included: it only sets values and wakes the loop.
        self._on_term()
        again, self._termed = self._termed, True
        forked = os.getpid() != self._pid  # the loop seems to run there too, and does not
        if self._delay > 0 and not again and not forked and self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._hand_over_later, number)
        else:
            self._hand_over(number, frame)

    def _hand_over_later(self, number: int) -> None:
        if self._loop is not None:
            self._loop.call_later(self._delay, self._hand_over, number)

    def _hand_over(self, number: int, frame: FrameType | None = None) -> None:
        if callable(self._before):
            self._before(number, frame)
        elif self._before == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
