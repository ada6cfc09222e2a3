"""What scenarios are made of: an engine, a recorder, and steps that are done to the engine meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from recorder import Recorder

from engines import lab

PORT = int(os.environ.get("ENGINE_PORT", "18810"))
LONG = 7000
"""Tokens of a generation that outlasts every scenario."""
CORE, WORKER = "VLLM::EngineCore", "VLLM::Worker"
RANK = "X-data-parallel-rank"
KINDS = {"vllm": (lab.vllm, "0.32.0"), "llamacpp": (lab.llamacpp, "b11434")}


@dataclass
class Stage:
    """One scenario under way; `requests` are those that are still in flight."""

    engine: lab.Engine
    recorder: Recorder
    requests: list[lab.Request] = field(default_factory=list)


Step = Callable[[Stage], None]


@dataclass(frozen=True)
class Scene:
    """A scenario.

    Attributes:
        meaning: What it shows, for the list.
        engine: A key of `KINDS`.
        steps: Done in order, while it is recorded.
        before: Done before the recording begins.
        arguments, env, model, key: How the engine is started.
        interval: Seconds between two looks; None: only `look` looks.
        extra, metrics: Side endpoints of every look, and the path of the metrics page.
        started: Whether it serves before the recording begins.
    """

    meaning: str
    engine: str
    steps: tuple[Step, ...]
    before: tuple[Step, ...] = ()
    arguments: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    model: str = "small"
    key: str | None = None
    interval: float | None = 1.0
    extra: tuple[str, ...] = ()
    metrics: str = "/metrics"
    started: bool = True


def record(scene: Scene, scratch: Path, output: Path) -> int:
    """Play a scene and write its recording; returns its size in bytes."""
    make, version = KINDS[scene.engine]
    engine = make(PORT, scratch / "log", *scene.arguments, model=scene.model, env=scene.env, key=scene.key)
    keep = ("Process-Start-Time-Unix",) if scene.engine == "llamacpp" else ()
    try:
        if scene.started:
            engine.start()
        recorder = Recorder(PORT, interval=scene.interval or 1.0, keep=keep, extra=scene.extra, metrics=scene.metrics)
        stage = Stage(engine, recorder)
        do(stage, scene.before)
        recorder.about(version=version, model=scene.model)
        with recorder.running() if scene.interval is not None else contextlib.nullcontext():
            do(stage, scene.steps)
        # What is still in flight would be in the next scene's way.
        aborted(stage)
        return recorder.write(output)
    finally:
        engine.stop()


def do(stage: Stage, steps: tuple[Step, ...]) -> None:
    """One step after the other."""
    for step in steps:
        step(stage)


def aborted(stage: Stage) -> None:
    """Every client leaves."""
    for request in stage.requests:
        request.abort()
    stage.requests.clear()


def wait(seconds: float) -> Step:
    """Let the engine go on as it is."""
    return lambda stage: time.sleep(seconds)


def note(text: str) -> Step:
    """Write down what is done."""
    return lambda stage: stage.recorder.event(text)


def served(count: int = 1, tokens: int = 20, rank: str | None = None) -> Step:
    """Short requests that are answered before the next step, and not written down."""

    def step(stage: Stage) -> None:
        headers = {RANK: rank} if rank is not None else {}
        for request in lab.send(stage.engine, count, tokens=tokens, headers=headers):
            request.join(120)

    return step


def work(count: int, rank: str | None = None, *, said: bool = True) -> Step:
    """Long requests that stay."""

    def step(stage: Stage) -> None:
        stage.requests += lab.send(stage.engine, count, tokens=LONG, headers={RANK: rank} if rank is not None else {})
        if said:
            stage.recorder.event(f"{count} requests sent" + (f" to rank {rank}" if rank is not None else ""))

    return step


def leave(stage: Stage) -> None:
    """All clients disconnect, and that is written down."""
    stage.recorder.event("all clients disconnect")
    aborted(stage)


def canary(rank: str | None = None) -> Step:
    """The smallest completion, pinned to a rank if one is named."""
    return lambda stage: _sent(stage, rank)


def _sent(stage: Stage, rank: str | None) -> None:
    stage.recorder.canary(stage.engine.model, lane=rank)


def look(stage: Stage) -> None:
    """One look, where the scene looks itself."""
    stage.recorder.look()
    time.sleep(1)


def stopped(title: str, *meanwhile: Step, which: int = 0, name: str | None = None) -> Step:
    """SIGSTOP a process of the engine by its title, SIGCONT it after the steps."""

    def step(stage: Stage) -> None:
        pid = stage.engine.processes(title)[which]
        called = name or title.removeprefix("VLLM::")
        stage.recorder.event(f"{called} SIGSTOP")
        with lab.stopped(pid):
            do(stage, meanwhile)
        stage.recorder.event(f"{called} SIGCONT")

    return step


def frozen(*meanwhile: Step, in_decode: bool) -> Step:
    """Freeze llama-server's decoding thread alone, inside a decode or wherever it is."""

    def step(stage: Stage) -> None:
        stage.recorder.event("engine thread frozen")
        with lab.frozen_in_decode(stage.engine) if in_decode else lab.frozen_thread(stage.engine.pid):
            do(stage, meanwhile)
        stage.recorder.event("engine thread goes on")

    return step


def killed(title: str) -> Step:
    """SIGKILL a process of the engine by its title."""

    def step(stage: Stage) -> None:
        stage.recorder.event(f"{title.removeprefix('VLLM::')} SIGKILL")
        os.kill(stage.engine.processes(title)[0], signal.SIGKILL)

    return step


def terminated(stage: Stage) -> None:
    """SIGTERM, as an orchestrator ends it."""
    stage.recorder.event("SIGTERM")
    os.kill(stage.engine.pid, signal.SIGTERM)


def restarted(words: str, after: float = 0.0) -> Step:
    """SIGKILL everything and start it again on the same port; returns when it serves."""

    def step(stage: Stage) -> None:
        stage.recorder.event(words)
        stage.engine.stop()
        time.sleep(after)
        stage.engine.start()
        stage.requests.clear()

    return step


def posted(path: str) -> Step:
    """POST to the engine, and write its answer down."""

    def step(stage: Stage) -> None:
        status, body = lab.post(PORT, path)
        stage.recorder.event(f"POST {path}: {status} {body.decode(errors='replace')[:80]}".rstrip())

    return step
