"""What is captured before a restart: bounded, by the configuration alone, and never in the way."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from llm_remediator.containers import Match, Process, Selector
from llm_remediator.diagnose import capture
from llm_remediator.gathering import read_pause_file, resolve, sample_processes
from llm_remediator.outcome import Outcome, Status, failed
from llm_remediator.rules import Backend, Target
from llm_remediator.settings import Diagnostics
from remediator.scenes import ID, ready
from remediator.world import Clock, Docker


@pytest.fixture
def runtime() -> Docker:
    return Docker(Clock(), {})


async def test_all_there_is(runtime: Docker) -> None:
    command = (sys.executable, "-c", "import sys; print('pid', *sys.argv[1:])", "{pid}", "{id}", "; touch /tmp/x")
    captured = await capture(Diagnostics(command=command), runtime, ready())
    assert sorted(captured) == ["command llm-vllm-1", "inspect llm-vllm-1", "logs llm-vllm-1", "proof", "top llm-vllm-1"]
    assert captured["command llm-vllm-1"] == f"pid 100 {ID} ; touch /tmp/x\n"
    assert json.loads(captured["proof"])["flat_since"]
    assert captured["logs llm-vllm-1"] == "a log line\n"


async def test_a_command_that_hangs_is_cut_off_with_its_children(runtime: Docker, tmp_path: Path) -> None:
    sleeper = "import time; time.sleep(60)"
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {sleeper!r}]); {sleeper}"
    began = time.monotonic()
    captured = await capture(Diagnostics(timeout=3.0, command=(sys.executable, "-c", child)), runtime, ready())
    assert time.monotonic() - began < 10
    assert "cut off after 1.5 s" in captured["command llm-vllm-1"]
    assert "logs llm-vllm-1" in captured


async def test_a_command_that_is_not_there_is_said(runtime: Docker) -> None:
    captured = await capture(Diagnostics(command=("/no/such/dumper",)), runtime, ready())
    assert "cannot be run" in captured["command llm-vllm-1"]


async def test_a_host_that_hangs_costs_no_more_than_the_time(runtime: Docker) -> None:
    async def hangs(*_: Any, **__: Any) -> Any:
        await asyncio.sleep(60)

    runtime.top = hangs  # type: ignore[method-assign]
    captured = await capture(Diagnostics(timeout=0.2), runtime, ready())
    assert captured["incomplete"] == "cut off after 0.2 s"
    assert "proof" in captured


async def test_what_docker_refuses_is_kept_as_its_words(runtime: Docker) -> None:
    async def refuses(*_: Any, **__: Any) -> Any:
        return failed(Status.REFUSED, "403 from the proxy")

    runtime.top = runtime.logs = refuses  # type: ignore[method-assign, assignment]
    captured = await capture(Diagnostics(), runtime, ready())
    assert captured["top llm-vllm-1"] == captured["logs llm-vllm-1"] == "403 from the proxy"


def test_the_pause_file(tmp_path: Path) -> None:
    path = tmp_path / "pause"
    assert read_pause_file(None, 0.0) == ()
    assert read_pause_file(str(path), 0.0) == ()
    for text, lasts in (("", 4 * 3600), ("90m\nwhy", 5400), ("soon", 4 * 3600)):
        path.write_text(text)
        (pause,) = read_pause_file(str(path), 0.0)
        assert pause.until == pytest.approx(path.stat().st_mtime + lasts)
    (pause,) = read_pause_file(str(tmp_path), 100.0)
    assert pause.until == 160.0
    assert "cannot be read" in pause.reason


async def test_unkillable_looks_are_repeated_and_ordinary_ones_are_not(runtime: Docker) -> None:
    boxes = ready().containers
    samples, fault = await sample_processes(runtime, runtime.clock, boxes)
    assert (len(samples), fault) == (1, "")
    runtime.processes = (Process(7, 1, "Ds", "nv", 1.0, "x"),)
    before = runtime.clock.now
    samples, fault = await sample_processes(runtime, runtime.clock, boxes)
    assert (len(samples), fault) == (3, "")
    assert runtime.clock.now - before == 10.0


async def test_what_cannot_be_resolved_says_why(runtime: Docker) -> None:
    target = Target("a", Backend.DOCKER, "local", (Selector(container="x"),))
    (member,) = await resolve(runtime, target)
    assert (member.reason, member.fault) == ("no_match", "no container matches container x")

    async def two(_: Any) -> Any:
        return Outcome(Status.OK, (Match("1" * 64, "p-x-1", "running"), Match("2" * 64, "p-x-2", "running")))

    runtime.find = two  # type: ignore[method-assign]
    (member,) = await resolve(runtime, target)
    assert member.reason == "ambiguous"
    assert "p-x-1, p-x-2" in member.fault

    async def one(_: Any) -> Any:
        return Outcome(Status.OK, (Match("1" * 64, "p-x-1", "running"),))

    runtime.find = one  # type: ignore[method-assign]
    (member,) = await resolve(runtime, target)
    assert (member.reason, member.container) == ("no_match", None)
    runtime.reachable = False
    (member,) = await resolve(runtime, target)
    assert member.reason == "unreachable"
