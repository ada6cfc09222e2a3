"""Make the recordings of ``tests/recordings-more`` anew: ``python scripts/engines/record.py [NAME…]``.

Each scenario starts a real engine, does one thing to it, and keeps what the engine published meanwhile.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "tests"), str(Path(__file__).resolve().parent)]

from recorder import Recorder  # noqa: E402

from engines import lab  # noqa: E402

OUT = REPOSITORY / "tests" / "recordings-more"
PORT = int(os.environ.get("ENGINE_PORT", "18810"))
KEY = "sk-recording"
LONG = 7000  # tokens of a generation that outlasts every scenario
LLAMA_HEADERS = ("Process-Start-Time-Unix",)

Scenario = Callable[[str, Path], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    """Register a scenario under its name with dashes."""
    SCENARIOS[function.__name__.replace("_", "-")] = function
    return function


def keep(recorder: Recorder, name: str) -> None:
    """Write it and say how large it is."""
    size = recorder.write(OUT / f"{name}.jsonl.gz")
    print(f"{name}: {size / 1000:.0f} kB", flush=True)


def rest(seconds: float) -> None:
    """Let the engine go on as it is."""
    time.sleep(seconds)


def aborted(requests: list[lab.Request]) -> None:
    """End what is still in flight, so that the next scenario starts idle."""
    for request in requests:
        request.abort()


def busy(engine: lab.Engine, recorder: Recorder, count: int, **headers: str) -> list[lab.Request]:
    """Send work and note it."""
    requests = lab.send(engine, count, tokens=LONG, headers={k.replace("_", "-"): v for k, v in headers.items()})
    recorder.event(f"{count} requests sent")
    return requests


@scenario
def vllm_data_parallel_one_rank_stopped_while_busy(name: str, scratch: Path) -> None:
    """Rank 1's engine process stops while both ranks work; a canary pinned to each."""
    engine = lab.vllm(PORT, scratch / "log", "--data-parallel-size", "2").start()
    try:
        rank1 = engine.processes("VLLM::EngineCore")[1]
        lab.send(engine, 4, tokens=20)
        rest(5)
        recorder = Recorder(PORT, interval=2.0)
        with recorder.running():
            recorder.about(version="0.32.0", model="small")
            requests = lab.send(engine, 2, tokens=LONG, headers={"X-data-parallel-rank": "0"})
            requests += lab.send(engine, 2, tokens=LONG, headers={"X-data-parallel-rank": "1"})
            recorder.event("2 requests sent to each rank")
            rest(3)
            recorder.event("EngineCore of rank 1 SIGSTOP")
            with lab.stopped(rank1):
                rest(14)
                for lane in ("1", "0"):
                    recorder.canary("small", lane=lane)
                    if requests[0].ended:
                        requests += lab.send(engine, 2, tokens=LONG, headers={"X-data-parallel-rank": "0"})
                        recorder.event("2 more requests sent to rank 0")
                rest(3)
            recorder.event("EngineCore of rank 1 SIGCONT")
            rest(4)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def vllm_data_parallel_idle_one_rank_stopped(name: str, scratch: Path) -> None:
    """Rank 1's engine process stops while everything is idle: only canaries pinned to it can tell."""
    engine = lab.vllm(PORT, scratch / "log", "--data-parallel-size", "2").start()
    try:
        rank1 = engine.processes("VLLM::EngineCore")[1]
        for lane in ("0", "1"):
            lab.send(engine, 1, tokens=20, headers={"X-data-parallel-rank": lane})[0].join(120)
        recorder = Recorder(PORT, interval=2.0)
        with recorder.running():
            recorder.about(version="0.32.0", model="small")
            rest(3)
            recorder.canary("small", lane="0")
            recorder.canary("small", lane="1")
            rest(2)
            recorder.event("EngineCore of rank 1 SIGSTOP")
            with lab.stopped(rank1):
                for _ in range(4):
                    rest(1)
                    recorder.canary("small", lane="0")
                    recorder.canary("small", lane="1")
                rest(3)
            recorder.event("EngineCore of rank 1 SIGCONT")
            rest(3)
        keep(recorder, name)
    finally:
        engine.stop()


def _plain(scratch: Path, *arguments: str, **options: str) -> lab.Engine:
    engine = lab.vllm(PORT, scratch / "log", *arguments, key=options.get("key")).start()
    lab.send(engine, 1, tokens=20)[0].join(120)
    return engine


@scenario
def vllm_engine_stopped_while_busy_canary_silent(name: str, scratch: Path) -> None:
    """The engine process stops with work in it, and the canary at the bound gets no answer."""
    engine = _plain(scratch)
    try:
        (core,) = engine.processes("VLLM::EngineCore")
        recorder = Recorder(PORT)
        with recorder.running():
            recorder.about(version="0.32.0", model="small")
            rest(1.5)
            requests = busy(engine, recorder, 3)
            rest(3)
            recorder.event("EngineCore SIGSTOP")
            with lab.stopped(core):
                rest(11.5)
                recorder.canary("small")
                rest(3)
            recorder.event("EngineCore SIGCONT")
            rest(2)
        aborted(requests)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def vllm_engine_stopped_with_one_request(name: str, scratch: Path) -> None:
    """The engine process stops with a single request in it: the page goes on to say 1 running while a canary is out."""
    engine = _plain(scratch)
    try:
        (core,) = engine.processes("VLLM::EngineCore")
        recorder = Recorder(PORT)
        with recorder.running():
            recorder.about(version="0.32.0", model="small")
            rest(1.5)
            requests = busy(engine, recorder, 1)
            rest(3)
            recorder.event("EngineCore SIGSTOP")
            with lab.stopped(core):
                rest(11.5)
                recorder.canary("small")
                rest(3)
            recorder.event("EngineCore SIGCONT")
            rest(2)
        aborted(requests)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def vllm_worker_stopped_while_busy(name: str, scratch: Path) -> None:
    """The worker process under the engine stops: the engine waits for it for ever, as for a hung GPU."""
    engine = _plain(scratch)
    try:
        (worker,) = engine.processes("VLLM::Worker")
        recorder = Recorder(PORT)
        with recorder.running():
            recorder.about(version="0.32.0", model="small")
            rest(1.5)
            requests = busy(engine, recorder, 3)
            rest(3)
            recorder.event("Worker SIGSTOP")
            with lab.stopped(worker):
                rest(11.5)
                recorder.canary("small")
                rest(3)
            recorder.event("Worker SIGCONT")
            rest(2)
        aborted(requests)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def vllm_engine_stopped_while_idle_canaries_silent(name: str, scratch: Path) -> None:
    """The engine process stops while idle; the page shows nothing; two canaries in a row get no answer."""
    engine = _plain(scratch)
    try:
        (core,) = engine.processes("VLLM::EngineCore")
        recorder = Recorder(PORT)
        with recorder.running():
            recorder.about(version="0.32.0", model="small")
            rest(2)
            recorder.canary("small")
            recorder.event("EngineCore SIGSTOP")
            with lab.stopped(core):
                for _ in range(2):
                    rest(3)
                    recorder.canary("small")
                rest(3)
            recorder.event("EngineCore SIGCONT")
            rest(3)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def vllm_restarted_while_busy(name: str, scratch: Path) -> None:
    """Killed with work in it and started again on the same port: new start time, all counters at 0."""
    engine = _plain(scratch)
    try:
        recorder = Recorder(PORT)
        with recorder.running():
            recorder.about(version="0.32.0", model="small")
            rest(1.5)
            busy(engine, recorder, 3)
            rest(3)
            recorder.event("everything SIGKILL, then started again")
            engine.stop()
            engine.start()
            recorder.event("serves again")
            rest(2)
            requests = busy(engine, recorder, 2)
            rest(3)
        aborted(requests)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def vllm_restarted_between_two_looks(name: str, scratch: Path) -> None:
    """A restart that no look falls into (the recording leaves those looks out): only the start time and counters tell."""
    engine = _plain(scratch)
    try:
        recorder = Recorder(PORT)
        requests = busy(engine, recorder, 3)
        for _ in range(4):
            recorder.look()
            rest(1)
        recorder.event("everything SIGKILL, then started again, unobserved")
        engine.stop()
        engine.start()
        requests = busy(engine, recorder, 3)
        rest(2)
        for _ in range(4):
            recorder.look()
            rest(1)
        aborted(requests)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def vllm_api_key(name: str, scratch: Path) -> None:
    """``--api-key``: pages are open, a canary without the key is 401; then the engine stops while it works."""
    engine = _plain(scratch, key=KEY)
    try:
        (core,) = engine.processes("VLLM::EngineCore")
        recorder = Recorder(PORT)
        with recorder.running():
            recorder.about(version="0.32.0", model="small")
            rest(1.5)
            recorder.canary("small")
            requests = busy(engine, recorder, 3)
            rest(3)
            recorder.event("EngineCore SIGSTOP")
            with lab.stopped(core):
                rest(11.5)
                recorder.canary("small")
                rest(3)
            recorder.event("EngineCore SIGCONT")
            rest(2)
        aborted(requests)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def vllm_two_api_servers_engine_stopped_while_busy(name: str, scratch: Path) -> None:
    """``--api-server-count 2`` and the engine process stops: no start time, no ``_created`` to lean on."""
    engine = _plain(scratch, "--api-server-count", "2")
    try:
        (core,) = engine.processes("VLLM::EngineCore")
        recorder = Recorder(PORT)
        with recorder.running():
            recorder.about(version="0.32.0", model="small")
            rest(1.5)
            requests = busy(engine, recorder, 4)
            rest(3)
            recorder.event("EngineCore SIGSTOP")
            with lab.stopped(core):
                rest(11.5)
                recorder.canary("small")
                rest(3)
            recorder.event("EngineCore SIGCONT")
            rest(2)
        aborted(requests)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def vllm_saturated(name: str, scratch: Path) -> None:
    """Two slots, 60 requests: 58 wait all the time while it works."""
    engine = _plain(scratch, "--max-num-seqs", "2")
    try:
        recorder = Recorder(PORT)
        with recorder.running():
            recorder.about(version="0.32.0", model="small")
            rest(1.5)
            requests = busy(engine, recorder, 60)
            rest(18)
            recorder.event("all clients disconnect")
            aborted(requests)
            rest(3)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def vllm_killed_while_idle(name: str, scratch: Path) -> None:
    """The engine process is killed with nothing in it."""
    engine = _plain(scratch)
    try:
        (core,) = engine.processes("VLLM::EngineCore")
        recorder = Recorder(PORT)
        with recorder.running():
            recorder.about(version="0.32.0", model="small")
            rest(3)
            recorder.event("EngineCore SIGKILL")
            os.kill(core, signal.SIGKILL)
            rest(15)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def vllm_paused(name: str, scratch: Path) -> None:
    """Development mode, ``/pause?mode=keep``: work held, nothing moves, on purpose."""
    engine = lab.vllm(PORT, scratch / "log", env={"VLLM_SERVER_DEV_MODE": "1"}).start()
    try:
        lab.send(engine, 1, tokens=20)[0].join(120)
        recorder = Recorder(PORT, extra=("/is_sleeping", "/is_paused"))
        with recorder.running():
            recorder.about(version="0.32.0", model="small")
            rest(1.5)
            requests = busy(engine, recorder, 3)
            rest(2)
            status, body = lab.post(PORT, "/pause?mode=keep")
            recorder.event(f"POST /pause?mode=keep: {status} {body.decode(errors='replace')[:80]}")
            rest(11.5)
            recorder.canary("small")
            rest(2)
            status, body = lab.post(PORT, "/resume")
            recorder.event(f"POST /resume: {status}")
            rest(3)
        aborted(requests)
        keep(recorder, name)
    finally:
        engine.stop()


def _llama(scratch: Path, *arguments: str, **options: str) -> lab.Engine:
    return lab.llamacpp(PORT, scratch / "log", *arguments, model=options.get("model", "small")).start()


def _llama_recorder(**options: object) -> Recorder:
    recorder = Recorder(PORT, keep=LLAMA_HEADERS, extra=("/props",), **options)  # type: ignore[arg-type]
    recorder.about(version="b11434", model="small")
    return recorder


@scenario
def llamacpp_engine_thread_frozen_while_busy(name: str, scratch: Path) -> None:
    """The decoding thread alone is frozen: ``/health`` answers all the while."""
    engine = _llama(scratch)
    try:
        recorder = _llama_recorder()
        with recorder.running():
            rest(2)
            requests = busy(engine, recorder, 2)
            rest(3)
            recorder.event("engine thread frozen")
            with lab.frozen_in_decode(engine):
                rest(14)
                recorder.canary("small")
                rest(2)
            recorder.event("engine thread goes on")
            rest(3)
        aborted(requests)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def llamacpp_engine_thread_frozen_while_idle(name: str, scratch: Path) -> None:
    """The decoding thread is frozen with nothing to do; then two requests arrive that nobody serves."""
    engine = _llama(scratch)
    try:
        recorder = _llama_recorder()
        with recorder.running():
            rest(3)
            recorder.event("engine thread frozen")
            with lab.frozen_thread(engine.pid):
                rest(3)
                recorder.canary("small")
                rest(2)
                recorder.canary("small")
                rest(2)
                requests = busy(engine, recorder, 2)
                rest(8)
            recorder.event("engine thread goes on")
            rest(3)
        aborted(requests)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def llamacpp_restarted_while_busy(name: str, scratch: Path) -> None:
    """Killed with work in it and started again: a new header, counters at 0, refused for a moment."""
    engine = _llama(scratch)
    try:
        recorder = _llama_recorder()
        with recorder.running():
            rest(2)
            busy(engine, recorder, 2)
            rest(3)
            recorder.event("SIGKILL, then started again after 3 s")
            engine.stop()
            rest(3)
            engine.start()
            requests = busy(engine, recorder, 2)
            rest(4)
        aborted(requests)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def llamacpp_terminated_while_busy(name: str, scratch: Path) -> None:
    """SIGTERM with work in it."""
    engine = _llama(scratch)
    try:
        recorder = _llama_recorder()
        with recorder.running():
            rest(2)
            busy(engine, recorder, 2)
            rest(3)
            recorder.event("SIGTERM")
            os.kill(engine.pid, signal.SIGTERM)
            rest(5)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def llamacpp_api_key_missing(name: str, scratch: Path) -> None:
    """``--api-key``: ``/metrics`` is 401 to whoever does not have it; ``/health`` is open."""
    engine = lab.llamacpp(PORT, scratch / "log", key=KEY).start()
    try:
        recorder = _llama_recorder()
        with recorder.running():
            rest(2)
            requests = busy(engine, recorder, 1)
            rest(3)
            recorder.canary("small")
            rest(2)
        aborted(requests)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def llamacpp_without_metrics(name: str, scratch: Path) -> None:
    """Started without ``--metrics``: 501."""
    engine = lab.llamacpp(PORT, scratch / "log", env={"NO_METRICS": "1"}).start()
    try:
        recorder = _llama_recorder()
        with recorder.running():
            rest(2)
            requests = busy(engine, recorder, 1)
            rest(4)
        aborted(requests)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def llamacpp_saturated(name: str, scratch: Path) -> None:
    """Two slots, 20 requests: 18 are deferred while it works."""
    engine = _llama(scratch)
    try:
        recorder = _llama_recorder()
        with recorder.running():
            rest(2)
            requests = busy(engine, recorder, 20)
            rest(12)
            recorder.event("all clients disconnect")
            aborted(requests)
            rest(4)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def llamacpp_slow_batches(name: str, scratch: Path) -> None:
    """One long prompt in batches of 2,048 tokens on one thread: each decode takes many seconds, the later the more."""
    engine = _llama(scratch, "--batch-size", "2048", "--ubatch-size", "2048", "--parallel", "1", model="slow")
    try:
        recorder = _llama_recorder()
        with recorder.running():
            rest(2)
            (request,) = lab.send(engine, 1, prompt=11000, tokens=1)
            recorder.event("1 request of 11000 tokens sent")
            rest(9)
            # Behind a batch a canary waits like any request: its silence is no proof here.
            while not request.ended:
                recorder.canary("slow", timeout=3.0)
                rest(4)
            recorder.event(f"done ({request.status}, {request.seconds:.1f})")
            rest(3)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def llamacpp_loading(name: str, scratch: Path) -> None:
    """From refused through 503 while it loads to idle."""
    engine = lab.llamacpp(PORT, scratch / "log", model="slow")
    try:
        recorder = _llama_recorder(interval=0.05)
        with recorder.running():
            rest(0.2)
            recorder.event("started")
            engine.start()
            rest(0.3)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def llamacpp_sleeping(name: str, scratch: Path) -> None:
    """``--sleep-idle-seconds 4``: it unloads its model after 4 s without work, and loads it again for a request."""
    engine = _llama(scratch, "--sleep-idle-seconds", "4")
    try:
        recorder = _llama_recorder()
        with recorder.running():
            recorder.event(f"GET /props: is_sleeping {is_sleeping()}")
            busy_once = lab.send(engine, 1, tokens=200)
            busy_once[0].join(30)
            recorder.event("1 request served")
            rest(9)
            recorder.event(f"GET /props: is_sleeping {is_sleeping()}")
            rest(2)
            lab.send(engine, 1, tokens=200)[0].join(30)
            recorder.event(f"1 request served; is_sleeping {is_sleeping()}")
            rest(2)
        keep(recorder, name)
    finally:
        engine.stop()


def is_sleeping() -> object:
    """What ``/props`` says of sleep."""
    import json

    return json.loads(lab.get(PORT, "/props")[1]).get("is_sleeping", "not said")


@scenario
def llamacpp_router(name: str, scratch: Path) -> None:
    """Router mode: ``/metrics`` without a model's name is 400; the models behind it are other processes."""
    models = Path(os.environ.get("STUCKPROOF_CACHE", Path.home() / ".cache" / "stuckproof"))
    engine = lab.llamacpp(PORT, scratch / "log", "--models-dir", str(models / "engines/llamacpp-11434/models")).start()
    try:
        recorder = _llama_recorder()
        with recorder.running():
            rest(2)
            requests = busy(engine, recorder, 1)
            rest(4)
            status, body = lab.get(PORT, "/metrics?model=small")
            recorder.event(f"GET /metrics?model=small: {status}, {len(body)} bytes")
            rest(1)
        aborted(requests)
        keep(recorder, name)
    finally:
        engine.stop()


@scenario
def llamacpp_router_model(name: str, scratch: Path) -> None:
    """Router mode, one model named, ``autoload=false``: not loaded, loaded by a request and busy, idle."""
    models = Path(os.environ.get("STUCKPROOF_CACHE", Path.home() / ".cache" / "stuckproof"))
    engine = lab.llamacpp(PORT, scratch / "log", "--models-dir", str(models / "engines/llamacpp-11434/models")).start()
    try:
        recorder = Recorder(PORT, keep=LLAMA_HEADERS, metrics="/metrics?model=small&autoload=false")
        recorder.about(version="b11434", model="small")
        with recorder.running():
            rest(3)
            recorder.event(f"{len(engine.session())} process: no look has loaded the model")
            requests = busy(engine, recorder, 2)
            rest(4)
            aborted(requests)
            recorder.event("all clients disconnect")
            rest(3)
        keep(recorder, name)
    finally:
        engine.stop()


def main(names: list[str]) -> int:
    """Record the named scenarios, or list what there is."""
    if not names:
        print("\n".join(f"{name}: {(function.__doc__ or '').splitlines()[0]}" for name, function in SCENARIOS.items()))
        return 0
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; without arguments they are listed", file=sys.stderr)
        return 2
    OUT.mkdir(exist_ok=True)
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                SCENARIOS[name](name, Path(scratch))
            except Exception:
                print((Path(scratch) / "log").read_text(errors="replace")[-3000:], file=sys.stderr)
                raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
