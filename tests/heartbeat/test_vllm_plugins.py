"""The vLLM plugins without vLLM: a module with its base class stands in, in today's form and in forms it may take.

tests/engines/test_heartbeat_vllm.py runs them in a real vLLM.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from loopback import free_port

ROOT = Path(__file__).resolve().parents[2]

TODAY = """
from abc import ABC, abstractmethod
class StatLoggerBase(ABC):
    @abstractmethod
    def __init__(self, vllm_config, engine_index=0): ...
    @abstractmethod
    def record(self, scheduler_stats, iteration_stats, mm_cache_stats=None, engine_idx=0): ...
    @abstractmethod
    def log_engine_initialized(self): ...
    def log(self): pass
    def record_sleep_state(self, is_awake, level): pass
"""
MORE_ABSTRACT = TODAY + "    @abstractmethod\n    def finish(self): ...\n"
WITH_A_STATE = """
class StatLoggerBase:
    def __init__(self, vllm_config, engine_index=0): self.seen = []
    def record(self, scheduler_stats, iteration_stats, mm_cache_stats=None, engine_idx=0): ...
    def record_rejection(self, reason): self.seen.append(reason)
"""
OTHERWISE_MADE = """
class StatLoggerBase:
    def __init__(self, *, config): ...
"""
RENAMED = "class SomethingElse: pass\n"


def run(tmp_path: Path, loggers: str, code: str, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    package = tmp_path / "vllm" / "v1" / "metrics"
    package.mkdir(parents=True)
    for directory in (package, package.parent, package.parent.parent):
        (directory / "__init__.py").touch()
    (package / "loggers.py").write_text(loggers)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("LLM_HEARTBEAT_", "PROMETHEUS_"))}
    clean |= {"PYTHONPATH": f"{tmp_path}:{ROOT / 'heartbeat'}"} | env
    return subprocess.run([sys.executable, "-c", code, *argv], env=clean, capture_output=True, text=True, timeout=60)


COUNT = """
from llm_heartbeat.vllm_steps import StepCounter
from prometheus_client import REGISTRY
loggers = {n: StepCounter(object(), n) for n in (0, 1)}
for _ in range(5):
    loggers[0].record(scheduler_stats=object(), iteration_stats=None, engine_idx=0)
loggers[0].record(scheduler_stats=None, iteration_stats=object(), engine_idx=0)   # another API server has this step
loggers[1].record(object(), object(), None, engine_idx=1)
loggers[1].record(object(), object())
loggers[1].log_engine_initialized(); loggers[1].log()
StepCounter(object(), 0)   # re-entrant
print([REGISTRY.get_sample_value("llm_engine_steps_total", {"lane": str(n)}) for n in (0, 1)])
"""


@pytest.mark.parametrize("loggers", [TODAY, MORE_ABSTRACT, WITH_A_STATE, OTHERWISE_MADE])
def test_steps_are_counted_per_lane(tmp_path: Path, loggers: str) -> None:
    done = run(tmp_path, loggers, COUNT, LLM_HEARTBEAT_VLLM_STEPS="1")
    assert done.stdout == "[5.0, 2.0]\n", done.stderr


def test_off_unless_asked_for(tmp_path: Path) -> None:
    done = run(tmp_path, TODAY, COUNT)
    assert done.stdout == "[None, None]\n", done.stderr


def test_off_and_statistics_off_is_not_loaded(tmp_path: Path) -> None:
    """A stat logger, even an idle one, would turn vLLM's statistics on again."""
    done = run(tmp_path, TODAY, COUNT, "--disable-log-stats")
    assert done.returncode == 1
    assert "ImportError: llm_heartbeat: LLM_HEARTBEAT_VLLM_STEPS is not set, and statistics are off" in done.stderr


def test_a_renamed_base_class_is_an_import_error_which_vllm_passes_by(tmp_path: Path) -> None:
    done = run(tmp_path, RENAMED, COUNT, LLM_HEARTBEAT_VLLM_STEPS="1")
    assert done.returncode == 1
    assert "ImportError: cannot import name 'StatLoggerBase'" in done.stderr


@pytest.mark.parametrize("on", ["0", "1"])
def test_what_a_later_base_class_does_by_itself_works(tmp_path: Path, on: str) -> None:
    code = (
        "from llm_heartbeat.vllm_steps import StepCounter\n"
        "logger = StepCounter(object(), engine_index=0)\n"
        "logger.record_rejection('full')\n"
        "print(logger.seen)\n"
    )
    assert run(tmp_path, WITH_A_STATE, code, LLM_HEARTBEAT_VLLM_STEPS=on).stdout == "['full']\n"


STRANGE = """
from llm_heartbeat.vllm_steps import StepCounter
logger = StepCounter(vllm_config=None, engine_index="zero", role="prefill")
logger.record(engine_idx=[], scheduler_stats=object(), something_new=1)
logger.record(engine_idx=[], scheduler_stats=object())
logger.record("a", "b", "c", "d", "e")
print("goes on")
"""


def test_strange_arguments_are_logged_once_and_passed_by(tmp_path: Path) -> None:
    done = run(tmp_path, TODAY, STRANGE, LLM_HEARTBEAT_VLLM_STEPS="1")
    assert done.stdout == "goes on\n", done.stderr
    assert done.stderr.count("vllm_steps: passed by") == 1


SERVE = """
import json, multiprocessing, sys, urllib.request, urllib.error
from llm_heartbeat.vllm_startup import serve
def child(_):
    serve()
    from llm_heartbeat import get
    return get().listening
if __name__ == "__main__":
    serve(); serve()
    from llm_heartbeat import get
    print(get().listening and get().listening[1], "prometheus_client" in sys.modules)
    if get().listening:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{get().listening[1]}/healthz/startup")
        except urllib.error.HTTPError as error:
            body = json.load(error)
            print(error.code, body["failed"], body["reason"])
        print(urllib.request.urlopen(f"http://127.0.0.1:{get().listening[1]}/healthz/live").status)
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{get().listening[1]}/metrics")
        except urllib.error.HTTPError as error:
            print(error.code, "prometheus_client" in sys.modules)
        get().serving()
        print(urllib.request.urlopen(f"http://127.0.0.1:{get().listening[1]}/healthz/startup").status)
"""


def test_startup_is_answered_while_loading_and_without_prometheus_client(tmp_path: Path) -> None:
    """vLLM sets `PROMETHEUS_MULTIPROC_DIR` after its plugins have run; an earlier import would miss it."""
    port = free_port()
    listen = f"127.0.0.1:{port}"
    done = run(tmp_path, TODAY, SERVE, LLM_HEARTBEAT_VLLM_STARTUP="1", LLM_HEARTBEAT_LISTEN=listen)
    assert done.stdout.splitlines() == [
        f"{port} False",
        "503 ['model_loading'] vLLM loads the model",
        "200",
        "503 False",
        "200",
    ], done.stderr


@pytest.mark.parametrize("env", [{"LLM_HEARTBEAT_VLLM_STARTUP": "1"}, {"LLM_HEARTBEAT_LISTEN": "127.0.0.1:1"}])
def test_startup_is_off_unless_both_are_set(tmp_path: Path, env: dict[str, str]) -> None:
    assert run(tmp_path, TODAY, SERVE, **env).stdout == "None False\n"


def test_engine_and_worker_processes_do_not_serve(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SERVE.split("if __name__")[0] + "if __name__ == '__main__':\n"
                       "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
                       "        print(pool.map(child, [0]))\n")  # fmt: skip
    env = {"LLM_HEARTBEAT_VLLM_STARTUP": "1", "LLM_HEARTBEAT_LISTEN": f"127.0.0.1:{free_port()}"}
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "heartbeat"), **env}
    found = subprocess.run([sys.executable, str(program)], env=environ, capture_output=True, text=True, timeout=60)
    assert found.stdout == "[None]\n", found.stderr


def test_a_broken_plugin_does_not_raise_into_vllm(tmp_path: Path) -> None:
    code = (
        "import llm_heartbeat.heartbeat as h\n"
        "def broken(): raise RuntimeError('ours')\n"
        "h.get = broken\n"
        "from llm_heartbeat.vllm_startup import serve\n"
        "serve(); print('goes on')\n"
    )
    done = run(tmp_path, TODAY, code, LLM_HEARTBEAT_VLLM_STARTUP="1")
    assert done.stdout == "goes on\n"
    assert "llm_heartbeat: stands aside: RuntimeError: ours" in done.stderr


def test_the_entry_points_name_what_is_there() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert points["vllm.general_plugins"] == {"stuckproof_startup": "llm_heartbeat.vllm_startup:serve"}
    assert points["vllm.stat_logger_plugins"] == {"stuckproof_steps": "llm_heartbeat.vllm_steps:StepCounter"}
