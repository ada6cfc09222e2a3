"""A fixed command as a target's remedy, such as `/usr/bin/systemctl restart vllm`: no shell, nothing from an alert.

For `systemctl restart UNIT` the unit's state is read with `systemctl show`, so that a stopped unit is not started
and its start times tell who acted. Any other command says nothing about what it restarts: then the exporter's
word on the process is all there is, and our own restarts are the only ones known.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import BinaryIO

from llm_remediator.config import FixedCommand
from llm_remediator.containers import Container, Event, Match, Process, RuntimeHealth, RuntimeInfo, Selector
from llm_remediator.outcome import Outcome, Status, failed

SHOW_TIMEOUT = 10.0
_POLL = 0.05
_OUTPUT = 16 * 1024
_PROPERTIES = "Id,LoadState,ActiveState,MainPID,InvocationID,ExecMainStartTimestamp,ExecMainExitTimestamp"
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "TZ": "UTC"}
_PASSED_ON = ("HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
"""What `systemctl --user` needs; nothing else of our environment reaches a command."""
_CHANGING = frozenset({"activating", "deactivating", "reloading", "refreshing", "maintenance"})


@dataclass(frozen=True, slots=True)
class _Ran:
    """How a process ended: its exit status, None if it was cut off, and the end of its output."""

    status: int | None
    output: str


class CommandRuntime:
    """`containers.ContainerRuntime` for the commands of the configuration, one at a time each."""

    def __init__(
        self,
        commands: Sequence[FixedCommand],
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._commands = {command_id(c.name): c for c in commands}
        self._wall = wall
        self._monotonic = monotonic
        self._restarted: dict[str, float] = {}
        self._out: set[str] = set()

    @property
    def host(self) -> str:
        """There is one: this machine."""
        return "command"

    @property
    def health(self) -> RuntimeHealth:
        """Always up: what fails is the command, and it says so."""
        return RuntimeHealth(True)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Commands that could not be run now."""
        return tuple(
            f"command {c.name}: {c.argv[0]} is not there, or may not be run by us"
            for c in self._commands.values()
            if not os.access(c.argv[0], os.X_OK)
        )

    async def ping(self) -> Outcome[RuntimeInfo]:
        """Nothing to ask."""
        return Outcome(Status.OK, RuntimeInfo("command", ""))

    async def find(self, selector: Selector) -> Outcome[tuple[Match, ...]]:
        """The command of that name."""
        if not selector.command:
            return failed(Status.REFUSED, "an empty selector names no command")
        found = self._commands.get(command_id(selector.command))
        return Outcome(Status.OK, (Match(command_id(found.name), found.name, "command"),) if found is not None else ())

    async def inspect(self, container_id: str) -> Outcome[Container]:
        """What systemd says of the unit; for other commands only our own last restart."""
        command = self._commands.get(container_id)
        if command is None:
            return failed(Status.NOT_FOUND, f"no command with id {container_id[:12]}")
        unit = systemd_unit(command.argv)
        if unit is None:
            at = self._restarted.get(container_id)
            return Outcome(Status.OK, _blind(container_id, command.name, at))
        began = self._monotonic()
        ran = await self._run([command.argv[0], *unit.scope, "show", unit.name, f"--property={_PROPERTIES}"], SHOW_TIMEOUT)
        seconds = self._monotonic() - began
        if isinstance(ran, Outcome):
            return failed(ran.status, ran.detail)
        if ran.status != 0:
            return failed(Status.UNAVAILABLE, f"systemctl show {unit.name}: {ran.output or ran.status}", seconds)
        told = dict(line.partition("=")[::2] for line in ran.output.splitlines() if "=" in line)
        if told.get("LoadState") != "loaded":
            return failed(
                Status.NOT_FOUND, f"unit {unit.name} is {told.get('LoadState') or 'not known to systemd'}", seconds
            )
        return Outcome(Status.OK, read_unit(container_id, told), seconds=seconds)

    async def restart(self, container_id: str, *, stop_timeout: float) -> Outcome[None]:
        """Run it once. Exit status 0 is success; cut off at its timeout is ambiguous."""
        return await self._carry_out(container_id, container_id)

    async def carry_out(self, name: str, container_id: str) -> Outcome[None]:
        """Run the command of that name once, in place of the restart of any back end's container."""
        return await self._carry_out(command_id(name), container_id)

    async def _carry_out(self, number: str, container_id: str) -> Outcome[None]:
        command = self._commands.get(number)
        if command is None:
            return failed(Status.NOT_FOUND, f"no command with id {number[:12]}")
        if number in self._out:
            return failed(Status.UNAVAILABLE, f"{command.name} is running already")
        self._out.add(number)
        began = self._monotonic()
        try:
            ran = await self._run(list(command.argv), command.timeout)
        finally:
            self._out.discard(number)
        seconds = self._monotonic() - began
        if isinstance(ran, Outcome):
            return failed(ran.status, ran.detail, seconds)
        if ran.status is None:
            return failed(Status.TIMED_OUT, f"{command.name} was cut off after {command.timeout:g} s: {ran.output}", seconds)
        if ran.status != 0:
            return failed(Status.REFUSED, f"{command.name} ended with {ran.status}: {ran.output}", seconds)
        if container_id in self._commands:
            self._restarted[container_id] = self._wall()
        return Outcome(Status.OK, seconds=seconds)

    async def start(self, container_id: str) -> Outcome[None]:
        """Never: a command that failed half-way is for people."""
        return failed(Status.REFUSED, "a fixed command has no start of its own")

    async def top(self, container_id: str) -> Outcome[tuple[Process, ...]]:
        """Not to be had."""
        return failed(Status.REFUSED, "a fixed command does not list processes")

    async def logs(self, container_id: str, *, lines: int, max_bytes: int) -> Outcome[str]:
        """Not to be had: give `diagnostics.command` for it."""
        return failed(Status.REFUSED, "a fixed command has no log; diagnostics.command may print one")

    async def events(self, container_id: str, *, since: float, until: float) -> Outcome[tuple[Event, ...]]:
        """Not to be had."""
        return failed(Status.REFUSED, "a fixed command has no events")

    async def watchdogs(self) -> Outcome[tuple[str, ...]]:
        """None are looked for."""
        return Outcome(Status.OK, ())

    async def close(self) -> None:
        """Nothing is held open."""

    async def _run(self, argv: list[str], timeout: float) -> _Ran | Outcome[None]:
        """The process's end, or an outcome if it could not begin. Its whole session is killed at the timeout.

        Only then: when we end before it, it comes to its own end. It may be between removing a container and making
        it anew, so its output goes to a file (writing to a dead reader's pipe kills), and no transport of asyncio
        owns it (which kills what it owns).
        """
        with _output() as output:
            try:
                process = _begin(argv, output)
            except OSError as exc:
                return failed(Status.UNAVAILABLE, f"{argv[0]} cannot be run: {exc.strerror or exc}")
            try:
                async with asyncio.timeout(timeout):
                    while process.poll() is None:  # noqa: ASYNC110 - nobody else tells when it ends
                        await asyncio.sleep(_POLL)
            except TimeoutError:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return _Ran(None, _end_of(output))
            return _Ran(process.returncode, _end_of(output))


def _output() -> BinaryIO:
    try:
        return tempfile.TemporaryFile("ab+")
    except OSError:  # no place for temporary files: it is run all the same
        return Path(os.devnull).open("ab+")


def _begin(argv: Sequence[str], output: BinaryIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=_ENVIRONMENT | {k: os.environ[k] for k in _PASSED_ON if k in os.environ},
    )


def _end_of(output: BinaryIO) -> str:
    output.seek(max(0, output.seek(0, os.SEEK_END) - _OUTPUT))
    return output.read().decode("utf-8", "replace").strip()


@dataclass(frozen=True, slots=True)
class Unit:
    """A systemd unit, and `--user` or `--system` as the command has it."""

    name: str
    scope: tuple[str, ...]


def command_id(name: str) -> str:
    """A 64-hex id for a command, as containers have."""
    return hashlib.sha256(f"command {name}".encode()).hexdigest()


def systemd_unit(argv: Sequence[str]) -> Unit | None:
    """The unit of a `systemctl … restart UNIT`, None for any other command."""
    if not argv or PurePath(argv[0]).name != "systemctl":
        return None
    words = [w for w in argv[1:] if not w.startswith("-")]
    if len(words) != 2 or words[0] not in ("restart", "try-restart"):
        return None
    return Unit(words[1], tuple(w for w in argv[1:] if w in ("--user", "--system")))


def read_unit(container_id: str, told: Mapping[str, str]) -> Container:
    """`systemctl show` (with TZ=UTC) as a container; its times are whole seconds."""
    active = told.get("ActiveState", "")
    changing = active in _CHANGING
    states = {"active": "running", "failed": "dead", "inactive": "exited"}
    pid = told.get("MainPID", "0")
    running = active == "active" or changing
    return Container(
        id=container_id,
        name=told.get("Id", ""),
        state="restarting" if changing else states.get(active, active or "unknown"),
        running=running,
        paused=False,
        restarting=changing,
        started_at=unit_time(told.get("ExecMainStartTimestamp", "")),
        # A new invocation is a new start, whatever the clock's resolution.
        started_at_raw=f"{told.get('InvocationID', '')}@{told.get('ExecMainStartTimestamp', '')}",
        finished_at=None if running else unit_time(told.get("ExecMainExitTimestamp", "")),
        pid=int(pid) if pid.isdigit() else 0,
        init=True,
    )


def unit_time(text: str) -> float | None:
    """`Mon 2026-11-30 03:59:11 UTC` as Unix seconds; None for anything else, `n/a` and empty included."""
    try:
        return datetime.strptime(text, "%a %Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _blind(container_id: str, name: str, restarted: float | None) -> Container:
    return Container(
        id=container_id,
        name=name,
        state="running",
        running=True,
        paused=False,
        restarting=False,
        started_at=restarted,
        started_at_raw=f"{restarted:.3f}" if restarted is not None else "",
        init=True,
    )
