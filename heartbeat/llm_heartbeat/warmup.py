"""Runs the application's warm-up: once after loading, and again whenever one is asked for."""

import asyncio
from collections.abc import Awaitable, Callable

from llm_heartbeat.startup import WARMING_UP
from llm_heartbeat.state import State

Warm = Callable[[], Awaitable[object]]


class Warmup:
    """One run at a time. A first warm-up that fails is a failed load; a later one is tried again after `hold`."""

    def __init__(self, state: State, warm: Warm) -> None:
        self._state = state
        self._warm = warm
        self._task: asyncio.Task[None] | None = None

    def run_if_due(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called with every heartbeat, in the loop's thread."""
        startup = self._state.startup
        if self._task is None and (startup.phase == WARMING_UP or startup.rewarming):
            self._task = loop.create_task(self._run(again=startup.rewarming), name="llm-heartbeat-warmup")

    def stop(self) -> None:
        """Cancel a run in progress."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self, again: bool) -> None:
        try:
            await self._warm()
        except Exception as error:  # noqa: BLE001 - the application's code; its failure is the verdict, and is shown
            self._state.faults.note("warmup", error)
            if again:
                await asyncio.sleep(self._state.settings.hold)
            else:
                self._state.load_failed(f"warm-up failed: {type(error).__name__}: {error}")
        else:
            self._state.warmed_up()
        finally:
            self._task = None
