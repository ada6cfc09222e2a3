"""Fixed commands: real processes, and a `systemctl` that prints what systemd 252 prints."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import llm_common
import llm_remediator
from llm_remediator.config import FixedCommand
from llm_remediator.containers import Selector
from llm_remediator.outcome import Status
from llm_remediator.runtime_command import CommandRuntime, command_id, systemd_unit, unit_time

SYSTEMCTL = """#!/bin/sh
# Keeps one unit's state in a folder, as systemd would.
D=$(dirname "$0")
case "$1" in
restart)
  [ -e "$D/broken" ] && { echo "Job for vllm.service failed" >&2; exit 1; }
  echo active > "$D/state"
  echo "Mon 2026-11-30 04:00:00 UTC" > "$D/started"
  echo second > "$D/invocation"
  echo x >> "$D/restarts" ;;
show)
  [ -e "$D/nobus" ] && { echo "Failed to connect to bus" >&2; exit 1; }
  echo Id=vllm.service
  echo "LoadState=$(cat "$D/load")"
  echo "ActiveState=$(cat "$D/state")"
  echo MainPID=4242
  echo "InvocationID=$(cat "$D/invocation")"
  echo "ExecMainStartTimestamp=$(cat "$D/started")"
  echo ExecMainExitTimestamp=n/a ;;
esac
"""


@pytest.fixture
def systemctl(tmp_path: Path) -> Path:
    path = tmp_path / "systemctl"
    path.write_text(SYSTEMCTL)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    for name, text in {
        "load": "loaded",
        "state": "active",
        "invocation": "first",
        "started": "Mon 2026-11-30 03:00:00 UTC",
    }.items():
        (tmp_path / name).write_text(text)
    return path


def command(*argv: str, timeout: float = 20.0) -> tuple[CommandRuntime, str]:
    return CommandRuntime([FixedCommand("heal", argv, timeout)]), command_id("heal")


async def test_the_unit_is_restarted_and_its_start_is_seen(systemctl: Path) -> None:
    runtime, cid = command(str(systemctl), "restart", "vllm")
    (match,) = (await runtime.find(Selector(command="heal"))).get()
    assert match.id == cid
    before = (await runtime.inspect(cid)).get()
    assert (before.name, before.state, before.running, before.pid) == ("vllm.service", "running", True, 4242)
    assert (await runtime.restart(cid, stop_timeout=5)).ok
    after = (await runtime.inspect(cid)).get()
    assert after.incarnation != before.incarnation
    assert after.started_at is not None
    assert before.started_at is not None
    assert after.started_at - before.started_at == 3600
    assert (systemctl.parent / "restarts").read_text() == "x\n"


@pytest.mark.parametrize(
    ("active", "state", "running", "restarting"),
    [
        ("inactive", "exited", False, False),
        ("failed", "dead", False, False),
        ("activating", "restarting", True, True),
        ("deactivating", "restarting", True, True),
    ],
)
async def test_the_units_state_is_a_containers(
    systemctl: Path, active: str, state: str, running: bool, restarting: bool
) -> None:
    (systemctl.parent / "state").write_text(active)
    runtime, cid = command(str(systemctl), "restart", "vllm")
    box = (await runtime.inspect(cid)).get()
    assert (box.state, box.running, box.restarting) == (state, running, restarting)


async def test_no_unit_no_bus_no_program(systemctl: Path) -> None:
    runtime, cid = command(str(systemctl), "restart", "vllm")
    (systemctl.parent / "load").write_text("not-found")
    assert (await runtime.inspect(cid)).status is Status.NOT_FOUND
    (systemctl.parent / "nobus").touch()
    outcome = await runtime.inspect(cid)
    assert outcome.status is Status.UNAVAILABLE
    assert "Failed to connect to bus" in outcome.detail
    runtime, cid = command("/nowhere/heal")
    outcome = await runtime.restart(cid, stop_timeout=5)
    assert outcome.status is Status.UNAVAILABLE
    assert "No such file" in outcome.detail


async def test_a_failed_command_is_refused_with_its_words(systemctl: Path) -> None:
    (systemctl.parent / "broken").touch()
    runtime, cid = command(str(systemctl), "restart", "vllm")
    outcome = await runtime.restart(cid, stop_timeout=5)
    assert outcome.status is Status.REFUSED
    assert "Job for vllm.service failed" in outcome.detail


async def test_a_timeout_is_ambiguous_and_the_whole_session_ends(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 300 & echo $! >> {pids}; echo $$ >> {pids}; echo working; wait"
    runtime, cid = command("/bin/sh", "-c", script, timeout=1.0)
    outcome = await runtime.restart(cid, stop_timeout=5)
    assert outcome.status is Status.TIMED_OUT
    assert "working" in outcome.detail
    deadline = time.monotonic() + 5
    for pid in map(int, pids.read_text().split()):
        while os.path.exists(f"/proc/{pid}") and "\tZ" not in Path(f"/proc/{pid}/status").read_text():
            assert time.monotonic() < deadline, f"{pid} still runs"
    assert (await runtime.inspect(cid)).get().started_at is None, "it is not known that it was restarted"


async def test_nothing_of_our_environment_but_what_systemd_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    runtime, cid = command("/bin/sh", "-c", "env; exit 3")
    outcome = await runtime.restart(cid, stop_timeout=5)
    assert "LC_ALL=C" in outcome.detail
    assert "s3cret" not in outcome.detail


async def test_other_commands_know_only_our_own_restarts() -> None:
    runtime, cid = command("/bin/true")
    blind = (await runtime.inspect(cid)).get()
    assert (blind.running, blind.started_at) == (True, None)
    assert (await runtime.restart(cid, stop_timeout=5)).ok
    after = (await runtime.inspect(cid)).get()
    assert after.started_at is not None
    assert after.incarnation != blind.incarnation


async def test_a_command_in_place_of_anothers_restart() -> None:
    """The rung of a ladder: run by name, and the start is known of the target that it was run for."""
    two = (FixedCommand("heal", ("/bin/true",), 9.0), FixedCommand("reset", ("/bin/sh", "-c", "echo no; exit 4"), 9.0))
    runtime = CommandRuntime(two)
    assert (await runtime.carry_out("heal", "ab" * 32)).ok
    assert (await runtime.inspect(command_id("heal"))).get().started_at is None
    assert "reset ended with 4: no" in (await runtime.carry_out("reset", command_id("heal"))).detail
    assert (await runtime.carry_out("heal", command_id("reset"))).ok
    assert (await runtime.inspect(command_id("reset"))).get().started_at is not None
    assert (await runtime.carry_out("other", "ab" * 32)).status is Status.NOT_FOUND


def test_a_command_that_is_not_there_is_warned_about_by_day(tmp_path: Path) -> None:
    plain = tmp_path / "not-executable"
    plain.write_text("#!/bin/sh\n")
    commands = [
        FixedCommand(n, (p,), 9.0) for n, p in {"good": "/bin/sh", "gone": "/nowhere/x", "plain": str(plain)}.items()
    ]
    gone, refused = CommandRuntime(commands).warnings
    assert gone == "command gone: /nowhere/x is not there, or may not be run by us"
    assert str(plain) in refused


async def test_unknown_names_select_nothing() -> None:
    runtime, _ = command("/bin/true")
    assert (await runtime.find(Selector(command="other"))).get() == ()
    assert (await runtime.find(Selector())).status is Status.REFUSED
    assert (await runtime.restart(command_id("other"), stop_timeout=1)).status is Status.NOT_FOUND
    assert (await runtime.start(command_id("heal"))).status is Status.REFUSED


@pytest.mark.parametrize(
    ("argv", "unit"),
    [
        (["/usr/bin/systemctl", "restart", "vllm"], "vllm"),
        (["/usr/bin/systemctl", "--no-block", "restart", "vllm@0.service"], "vllm@0.service"),
        (["/usr/bin/systemctl", "--user", "try-restart", "vllm"], "vllm"),
        (["/usr/bin/systemctl", "restart", "a", "b"], None),
        (["/usr/bin/systemctl", "start", "vllm"], None),
        (["/usr/local/bin/heal"], None),
        ([], None),
    ],
)
def test_units_are_recognized(argv: list[str], unit: str | None) -> None:
    found = systemd_unit(argv)
    assert (found.name if found is not None else None) == unit


def test_unit_times() -> None:
    assert unit_time("Thu 1970-01-01 00:00:01 UTC") == 1.0
    for none in ("n/a", "", "Thu 1970-01-01 00:00:01 CET"):
        assert unit_time(none) is None


DYING = """
import asyncio, sys
from llm_remediator.config import FixedCommand
from llm_remediator.runtime_command import CommandRuntime, command_id
runtime = CommandRuntime([FixedCommand("heal", ("/bin/sh", "-c", sys.argv[1]), 60.0)])
asyncio.run(runtime.restart(command_id("heal"), stop_timeout=1.0))
"""


def test_our_death_does_not_cut_a_command_off_half_way(tmp_path: Path) -> None:
    """Whatever it prints after it: a pipe without a reader would kill it between `rm` and `run`."""
    begun, go, done = tmp_path / "begun", tmp_path / "go", tmp_path / "done"
    script = f"touch {begun}; while [ ! -e {go} ]; do sleep 0.1; done; echo removed && touch {done}"
    paths = os.pathsep.join(str(Path(module.__file__ or "").parents[1]) for module in (llm_common, llm_remediator))
    process = subprocess.Popen([sys.executable, "-c", DYING, script], env=os.environ | {"PYTHONPATH": paths})
    until("it runs", begun.exists)
    process.kill()
    process.wait(10)
    go.touch()
    until("it came to its end", done.exists)


async def test_a_child_that_stays_behind_is_not_waited_for(tmp_path: Path) -> None:
    runtime, cid = command("/bin/sh", "-c", "sleep 60 & echo $!", timeout=30.0)
    began = time.monotonic()
    outcome = await runtime.restart(cid, stop_timeout=1)
    assert outcome.ok
    assert time.monotonic() - began < 20


def until(what: str, look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
