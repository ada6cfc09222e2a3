"""Every command and every fragment of the README is run, as it stands there but for addresses and image names."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.sim_server import DEMO, SimServer
from e2e.harness import docker_answers, http, run, wait_for
from llm_common.config import load_yaml
from llm_exporter.config import load as load_exporter
from llm_exporter.engines import engines
from llm_remediator.config import parse as parse_remediator
from loopback import free_port

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
URL = "http://127.0.0.1:8000"
RUN_BY_THE_STACK = {"make run", "make demo"}
"""tests/e2e: the stack of all end-to-end tests is `make run`, and tests/e2e/test_demo.py runs `make demo`."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    lines = [line for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")]
    return [re.sub(r"\s+#.*", "", line.removeprefix("$ ")) for line in lines]


def fragment(start: str) -> str:
    """The YAML block that begins with this text."""
    return next(block for block in blocks("yaml") if block.startswith(start))


def test_no_command_or_fragment_goes_untried() -> None:
    used = {"pip install .", f"llm-exporter check {URL}", f"llm-exporter {URL}"}
    assert set(commands()) == used | RUN_BY_THE_STACK
    assert len(blocks("yaml")) == 3
    assert set(re.findall(r"^```(\w*)$", README, re.MULTILINE)) == {"console", "yaml", ""}


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z0-9-]+)`", README + (ROOT / "CONTRIBUTING.md").read_text()))
    assert {"test", "stop"} <= named <= targets


def test_linked_files_exist() -> None:
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", README):
        assert "://" in link or (ROOT / link).exists(), link


def test_settings_are_valid(tmp_path: Path) -> None:
    key, exporter, remediator = (tmp_path / name for name in ("vllm-key", "exporter.yml", "remediator.yml"))
    key.write_text("secret\n")
    exporter.write_text(fragment("# exporter.yml").replace("/run/secrets/vllm-key", str(key)))
    kinds = [engine.kind for engine in engines()]
    assert [target.name for target in load_exporter(str(exporter), kinds).targets] == ["vllm"]
    remediator.write_text(fragment("# remediator.yml"))
    assert [target.name for target in parse_remediator(load_yaml(str(remediator))).targets] == ["vllm"]


@pytest.mark.e2e
@pytest.mark.timeout(240)
async def test_installed_and_used_as_it_says(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    await asyncio.to_thread(run, [sys.executable, "-m", "venv", str(venv)], 60)
    environment = os.environ | {"PATH": f"{venv / 'bin'}:{os.environ['PATH']}"}
    for name in ("PYTHONPATH", "VIRTUAL_ENV"):
        environment.pop(name, None)
    assert "pip install ." in commands()
    await asyncio.to_thread(run, [str(venv / "bin" / "pip"), "install", "-q", str(ROOT)], 180, environment)
    async with SimServer(tmp_path) as engine:
        clients = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "llm_sim.traffic", engine.url, "--concurrency", "52"),
            env=os.environ | {"PYTHONPATH": str(DEMO)},
        )
        try:
            await asyncio.sleep(12)  # the sentence gives the rate over ten seconds
            await asyncio.to_thread(_use, engine.url, environment)
        finally:
            clients.terminate()
            await clients.wait()


def _use(engine: str, environment: dict[str, str]) -> None:
    check, serve = (c.replace(URL, engine).split() for c in commands() if c.startswith("llm-exporter"))
    done = subprocess.run(check, capture_output=True, text=True, timeout=60, env=environment, check=False)
    shown = next(line for line in README.splitlines() if line.startswith("busy: "))
    pattern = re.sub(r"\d+", r"[0-9.]+", re.escape(shown).replace(r"\ ", " "))
    assert re.search(f"{pattern}", done.stdout), done.stdout + done.stderr
    assert done.returncode == 0
    port = free_port()
    served = subprocess.Popen([*serve, f"--web.listen-address=127.0.0.1:{port}"], env=environment)
    try:
        wait_for("busy and moving, on /metrics", 40, lambda: _moves(f"http://127.0.0.1:{port}/metrics"))
    finally:
        served.terminate()
        assert served.wait(20) == 0


def _moves(url: str) -> bool:
    page = http("GET", url).text
    busy = re.search(r'^llm_health_state{.*"busy".*} 1(\.0)?$', page, re.MULTILINE)
    return bool(busy and re.search(r"^llm_engine_progress{.*} 1(\.0)?$", page, re.MULTILINE))


@pytest.mark.e2e
@pytest.mark.timeout(240)
def test_the_compose_fragment_watches_ones_own_vllm(tmp_path: Path) -> None:
    if not docker_answers():
        pytest.skip("no Docker Engine answers; `make test-e2e` starts one")
    project, port = "stuckproof-readme", free_port()
    compose: dict[str, Any] = yaml.safe_load(fragment("services:"))
    # A simulated vLLM in the place of the real image, and a port that is free; everything else is the README's.
    compose["services"]["vllm"] |= {"image": "stuckproof.local/demo:dev", "entrypoint": ["python", "-m", "llm_sim"]}
    compose["services"]["exporter"]["ports"] = [f"127.0.0.1:{port}:10140"]
    files = {
        "compose.yaml": yaml.safe_dump(compose),
        "exporter.yml": fragment("# exporter.yml"),
        "remediator.yml": fragment("# remediator.yml").replace("compose_project: mine", f"compose_project: {project}"),
        "vllm-key": "sk-readme\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o644)
    command = [*os.environ.get("COMPOSE", "docker compose").split(), "--progress", "quiet", "-p", project]
    command += ["-f", str(tmp_path / "compose.yaml")]
    environment = os.environ | {"VLLM_API_KEY": "sk-readme"}
    try:
        run([*command, "up", "-d"], 120, environment)

        def verified() -> dict[str, Any] | None:
            found: dict[str, Any] = http("GET", f"http://127.0.0.1:{port}/api/v1/targets/vllm").json()
            return found if found["state"] == "idle" and found["idle_verified_at"] else None

        seen = wait_for("idle, verified by a canary that knew the key", 90, verified)
        assert "verified" in seen["sentence"]
        time.sleep(1)
        status = [*command, "exec", "-T", "remediator", "llm-remediator", "status"]
        status += ["--config.file=/etc/stuckproof/remediator.yml"]
        said = wait_for("the remediator knows the target", 60, lambda: _says_idle(run(status, 60, environment)))
        assert "vllm" in said
        assert "observe" in said
    except AssertionError as error:
        logs = run([*command, "logs", "--no-color", "--tail", "40"], 60, environment)
        raise AssertionError(f"{error}\n{logs}") from error
    finally:
        run([*command, "down", "--volumes", "--timeout", "3"], 120, environment)


def _says_idle(said: str) -> str | None:
    return said if "idle" in said else None
