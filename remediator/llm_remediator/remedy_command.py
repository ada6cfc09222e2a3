"""A fixed command in place of a target's own restart: the ladder's other rungs, such as `docker compose up -d`.

Such a command may leave the same container started anew, or another one under a new id. Both are found here, so that
all that judges a restart looks at the container as it stands, and needs not know what was run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from llm_remediator.containers import Container, ContainerRuntime, Selector, the_one
from llm_remediator.outcome import Outcome, Status, failed
from llm_remediator.ports import Clock


class Commands(Protocol):
    """Runs the fixed commands of the configuration."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Commands that could not be run now: better told by day."""
        ...

    async def carry_out(self, name: str, container_id: str) -> Outcome[None]:
        """Run one, once, in place of the restart of a container."""
        ...


class CommandRemedy:
    """`restarting.Doctor` whose restart is a command. `selectors`: of each container of the target, by its id.

    A container that is gone is looked for by its selector, for `patience` seconds: a recreate shows none or two for a while.
    """

    def __init__(
        self,
        name: str,
        commands: Commands | None,
        runtime: ContainerRuntime,
        selectors: Mapping[str, Selector],
        clock: Clock,
        patience: float,
    ) -> None:
        self._name = name
        self._commands = commands
        self._runtime = runtime
        self._selectors = selectors
        self._clock = clock
        self._patience = patience
        self._now: dict[str, str] = {}
        self._missing_since: float | None = None

    async def inspect(self, container_id: str) -> Outcome[Container]:
        """The container, or the one that took its place."""
        found = await self._runtime.inspect(self._now.get(container_id, container_id))
        if found.status is not Status.NOT_FOUND or container_id not in self._selectors:
            return found
        selector = self._selectors[container_id]
        matches = await self._runtime.find(selector)
        if not matches.ok:
            return failed(matches.status, matches.detail)
        match, why = the_one(matches.get(), selector)
        if match is None:
            since = self._missing_since = self._missing_since or self._clock.monotonic()
            late = self._clock.monotonic() - since >= self._patience
            return failed(Status.NOT_FOUND if late else Status.UNAVAILABLE, why)
        self._missing_since = None
        self._now[container_id] = match.id
        return await self._runtime.inspect(match.id)

    async def restart(self, container_id: str, *, stop_timeout: float) -> Outcome[None]:
        """The command, for the first container of the target; a member that it left alone is restarted as ever."""
        if container_id == next(iter(self._selectors), container_id):
            if self._commands is None:
                return failed(Status.UNAVAILABLE, f"there is no command {self._name}")
            return await self._commands.carry_out(self._name, container_id)
        return await self._runtime.restart(self._now.get(container_id, container_id), stop_timeout=stop_timeout)

    async def start(self, container_id: str) -> Outcome[None]:
        """Start what the command left stopped."""
        return await self._runtime.start(self._now.get(container_id, container_id))
