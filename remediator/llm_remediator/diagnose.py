"""What is kept of a patient before it is restarted: the restart destroys all of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from llm_remediator.config import Diagnostics
from llm_remediator.containers import Container, ContainerRuntime
from llm_remediator.snapshot import Snapshot

LOG_BYTES = 256 * 1024


async def capture(settings: Diagnostics, runtime: ContainerRuntime, snapshot: Snapshot) -> dict[str, str]:
    """Log lines, processes, inspect, the exporter's evidence, and an own command's output, as texts by name.

    Bounded by `settings.timeout`; what was not there in time is missing, and never stops the restart.
    """
    captured: dict[str, str] = {}
    if snapshot.proof is not None and snapshot.proof.outcome.ok:
        captured["proof"] = _text(asdict(snapshot.proof.outcome.get()))
    try:
        async with asyncio.timeout(settings.timeout):
            for box in snapshot.containers:
                captured[f"inspect {box.name}"] = _text(asdict(box))
                await _of_container(settings, runtime, box, captured)
    except TimeoutError:
        captured["incomplete"] = f"cut off after {settings.timeout:g} s"
    return captured


async def _of_container(settings: Diagnostics, runtime: ContainerRuntime, box: Container, captured: dict[str, str]) -> None:
    listed = await runtime.top(box.id)
    captured[f"top {box.name}"] = _text([asdict(p) for p in listed.get()]) if listed.ok else listed.detail
    if settings.command:
        captured[f"command {box.name}"] = await _run(settings, box)
    if settings.log_lines:
        logs = await runtime.logs(box.id, lines=settings.log_lines, max_bytes=LOG_BYTES)
        captured[f"logs {box.name}"] = (logs.value or "") if logs.ok else logs.detail


async def _run(settings: Diagnostics, box: Container) -> str:
    """The configured argv with `{pid}` and `{id}` of inspect; no shell, at most half of the time."""
    argv = [part.replace("{pid}", str(box.pid)).replace("{id}", box.id) for part in settings.command]
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return f"{argv[0]} cannot be run: {error.strerror or error}"
    try:
        out, _ = await asyncio.wait_for(process.communicate(), settings.timeout / 2)
    except TimeoutError:
        return f"{argv[0]} was cut off after {settings.timeout / 2:g} s"
    finally:
        if process.returncode is None:
            # The whole session: a dumper's child would hold the pipe open.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return out[-LOG_BYTES:].decode("utf-8", "replace")


def _text(value: Mapping[str, Any] | list[Any]) -> str:
    return json.dumps(value, default=str, indent=1)
