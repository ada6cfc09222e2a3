"""Make the recordings of ``tests/recordings-more`` anew: ``python scripts/engines/record.py [NAME…]``.

Each scene starts a real engine, does one thing to it, and keeps what the engine published meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "tests"), str(Path(__file__).resolve().parent)]

from scenes import (  # noqa: E402
    CORE,
    PORT,
    WORKER,
    Scene,
    Stage,
    Step,
    canary,
    frozen,
    killed,
    leave,
    look,
    note,
    posted,
    record,
    restarted,
    served,
    stopped,
    terminated,
    wait,
    work,
)

from engines import lab  # noqa: E402

OUT = REPOSITORY / "tests" / "recordings-more"
KEY = "sk-recording"
CACHE = Path(os.environ.get("STUCKPROOF_CACHE", Path.home() / ".cache" / "stuckproof"))
MODELS = ("--models-dir", str(CACHE / "engines/llamacpp-11434/models"))
TWO_RANKS = ("--data-parallel-size", "2")


def vllm(meaning: str, *steps: Step, **more: Any) -> Scene:
    """A vLLM that has served once."""
    return replace(Scene(meaning, "vllm", steps, before=(served(),)), **more)


def llama(meaning: str, *steps: Step, **more: Any) -> Scene:
    """A llama-server, its ``/props`` read with every look."""
    return replace(Scene(meaning, "llamacpp", steps, extra=("/props",)), **more)


def hangs(count: int, title: str = CORE) -> tuple[Step, ...]:
    """Work is sent, a process stops, and a canary at the bound gets no answer."""
    return (wait(1.5), work(count), wait(3), stopped(title, wait(11.5), canary(), wait(3)), wait(2))


def refill(stage: Stage) -> None:
    """Rank 0 goes on to have work."""
    if stage.requests[0].ended:
        work(2, "0")(stage)


def long_prompt(stage: Stage) -> None:
    """A prompt whose batches take many seconds each; behind a batch a canary waits like any request."""
    (request,) = lab.send(stage.engine, 1, prompt=11000, tokens=1)
    stage.recorder.event("1 request of 11000 tokens sent")
    time.sleep(9)
    while not request.ended:
        stage.recorder.canary("slow", timeout=3.0)
        time.sleep(4)
    stage.recorder.event(f"done ({request.status}, {request.seconds:.1f})")


def start(stage: Stage) -> None:
    """Start the engine while it is recorded."""
    stage.recorder.event("started")
    stage.engine.start()


def sleep_state(stage: Stage) -> None:
    """Write down what ``/props`` says of sleep."""
    said = json.loads(lab.get(PORT, "/props")[1]).get("is_sleeping", "not said")
    stage.recorder.event(f"GET /props: is_sleeping {said}")


def asked_of_the_router(stage: Stage) -> None:
    """A look at one model of the router."""
    status, body = lab.get(PORT, "/metrics?model=small")
    stage.recorder.event(f"GET /metrics?model=small: {status}, {len(body)} bytes")


def processes(stage: Stage) -> None:
    """Write down how many processes the router has."""
    stage.recorder.event(f"{len(stage.engine.session())} process: no look has loaded the model")


SCENES: dict[str, Scene] = {
    "vllm-data-parallel-one-rank-stopped-while-busy": vllm(
        "Rank 1's engine process stops while both ranks work; a canary pinned to each.",
        work(2, "0"), work(2, "1"), wait(3),
        stopped(CORE, wait(14), canary("1"), refill, canary("0"), refill, wait(3), which=1, name="EngineCore of rank 1"),
        wait(4),
        before=(served(4), wait(5)), arguments=TWO_RANKS, interval=2.0,
    ),
    "vllm-data-parallel-idle-one-rank-stopped": vllm(
        "Rank 1's engine process stops while everything is idle: only canaries pinned to it can tell.",
        wait(3), canary("0"), canary("1"), wait(2),
        stopped(CORE, *(wait(1), canary("0"), canary("1")) * 4, wait(3), which=1, name="EngineCore of rank 1"),
        wait(3),
        before=(served(rank="0"), served(rank="1")), arguments=TWO_RANKS, interval=2.0,
    ),
    "vllm-engine-stopped-while-busy-canary-silent": vllm(
        "The engine process stops with work in it, and the canary at the bound gets no answer.", *hangs(3)
    ),
    "vllm-engine-stopped-with-one-request": vllm(
        "The engine process stops with a single request in it: the page goes on to say 1 running while a canary is out.",
        *hangs(1),
    ),
    "vllm-worker-stopped-while-busy": vllm(
        "The worker process under the engine stops: the engine waits for it for ever, as for a hung GPU.", *hangs(3, WORKER)
    ),
    "vllm-engine-stopped-while-idle-canaries-silent": vllm(
        "The engine process stops while idle; the page shows nothing; two canaries in a row get no answer.",
        wait(2), canary(), stopped(CORE, wait(3), canary(), wait(3), canary(), wait(3)), wait(3),
    ),
    "vllm-restarted-while-busy": vllm(
        "Killed with work in it and started again on the same port: new start time, all counters at 0.",
        wait(1.5), work(3), wait(3), restarted("everything SIGKILL, then started again"), note("serves again"), wait(2),
        work(2), wait(3),
    ),
    "vllm-restarted-between-two-looks": vllm(
        "A restart that no look falls into (the recording leaves those looks out): only the start time and counters tell.",
        work(3), *(look,) * 4, restarted("everything SIGKILL, then started again, unobserved"), work(3), wait(2),
        *(look,) * 4,
        interval=None,
    ),
    "vllm-api-key": vllm(
        "``--api-key``: pages are open, a canary without the key is 401; then the engine stops while it works.",
        wait(1.5), canary(), work(3), wait(3), stopped(CORE, wait(11.5), canary(), wait(3)), wait(2),
        key=KEY,
    ),
    "vllm-two-api-servers-engine-stopped-while-busy": vllm(
        "``--api-server-count 2`` and the engine process stops: no start time, no ``_created`` to lean on.",
        *hangs(4), arguments=("--api-server-count", "2"),
    ),
    "vllm-saturated": vllm(
        "Two slots, 60 requests: 58 wait all the time while it works.",
        wait(1.5), work(60), wait(18), leave, wait(3), arguments=("--max-num-seqs", "2"),
    ),
    "vllm-killed-while-idle": vllm(
        "The engine process is killed with nothing in it.", wait(3), killed(CORE), wait(15)
    ),
    "vllm-paused": vllm(
        "Development mode, ``/pause?mode=keep``: work held, nothing moves, on purpose.",
        wait(1.5), work(3), wait(2), posted("/pause?mode=keep"), wait(11.5), canary(), wait(2), posted("/resume"), wait(3),
        env={"VLLM_SERVER_DEV_MODE": "1"}, extra=("/is_sleeping", "/is_paused"),
    ),
    "llamacpp-engine-thread-frozen-while-busy": llama(
        "The decoding thread alone is frozen: ``/health`` answers all the while.",
        wait(2), work(2), wait(3), frozen(wait(14), canary(), wait(2), in_decode=True), wait(3),
    ),
    "llamacpp-engine-thread-frozen-while-idle": llama(
        "The decoding thread is frozen with nothing to do; then two requests arrive that nobody serves.",
        wait(3), frozen(wait(3), canary(), wait(2), canary(), wait(2), work(2), wait(8), in_decode=False), wait(3),
    ),
    "llamacpp-restarted-while-busy": llama(
        "Killed with work in it and started again: a new header, counters at 0, refused for a moment.",
        wait(2), work(2), wait(3), restarted("SIGKILL, then started again after 3 s", after=3), work(2), wait(4),
    ),
    "llamacpp-terminated-while-busy": llama("SIGTERM with work in it.", wait(2), work(2), wait(3), terminated, wait(5)),
    "llamacpp-api-key-missing": llama(
        "``--api-key``: ``/metrics`` is 401 to whoever does not have it; ``/health`` is open.",
        wait(2), work(1), wait(3), canary(), wait(2), key=KEY,
    ),
    "llamacpp-without-metrics": llama(
        "Started without ``--metrics``: 501.", wait(2), work(1), wait(4), env={"NO_METRICS": "1"}
    ),
    "llamacpp-saturated": llama(
        "Two slots, 20 requests: 18 are deferred while it works.", wait(2), work(20), wait(12), leave, wait(4)
    ),
    "llamacpp-slow-batches": llama(
        "One long prompt in batches of 2,048 tokens on one thread: each decode takes many seconds, the later the more.",
        wait(2), long_prompt, wait(3),
        arguments=("--batch-size", "2048", "--ubatch-size", "2048", "--parallel", "1"), model="slow",
    ),
    "llamacpp-loading": llama(
        "From refused through 503 while it loads to idle.",
        wait(0.2), start, wait(0.3), started=False, interval=0.05, model="slow",
    ),
    "llamacpp-sleeping": llama(
        "``--sleep-idle-seconds 4``: it unloads its model after 4 s without work, and loads it again for a request.",
        sleep_state, served(tokens=200), note("1 request served"), wait(9), sleep_state, wait(2), served(tokens=200),
        note("1 request served"), sleep_state, wait(2),
        arguments=("--sleep-idle-seconds", "4"),
    ),
    "llamacpp-router": llama(
        "Router mode: ``/metrics`` without a model's name is 400; the models behind it are other processes.",
        wait(2), work(1), wait(4), asked_of_the_router, wait(1), arguments=MODELS,
    ),
    "llamacpp-router-model": llama(
        "Router mode, one model named, ``autoload=false``: not loaded, loaded by a request and busy, idle.",
        wait(3), processes, work(2), wait(4), leave, wait(3),
        arguments=MODELS, metrics="/metrics?model=small&autoload=false", extra=(),
    ),
}  # fmt: skip


def main(names: list[str]) -> int:
    """Record the named scenes, or list what there is."""
    if not names:
        print("\n".join(f"{name}: {scene.meaning}" for name, scene in SCENES.items()))
        return 0
    unknown = [name for name in names if name not in SCENES]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; without arguments they are listed", file=sys.stderr)
        return 2
    OUT.mkdir(exist_ok=True)
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                size = record(SCENES[name], Path(scratch), OUT / f"{name}.jsonl.gz")
            except Exception:
                # Raised again; but the engine's log says why, and its folder is about to go.
                print((Path(scratch) / "log").read_text(errors="replace")[-3000:], file=sys.stderr)
                raise
        print(f"{name}: {size / 1000:.0f} kB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
