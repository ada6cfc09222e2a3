"""The command line as a process: what people type, what they read, what it returns."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import unused_port

from llm_remediator import cli

ROOT = Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": f"{ROOT}/common:{ROOT}/remediator"}
MAIN = [sys.executable, "-m", "llm_remediator.cli"]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MAIN, *words], env=ENV, capture_output=True, text=True, timeout=30, check=False)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "remediator.yml"
    path.write_text(
        f"""
exporter: http://127.0.0.1:{unused_port()}
journal: {tmp_path}/journal.sqlite
docker: {{hosts: {{local: "unix://{tmp_path}/no.sock"}}}}
interval: 1s
targets:
  - name: llm/a
    docker: {{container: spb-none}}
"""
    )
    return path


class Running:
    def __init__(self, config: Path, *words: str) -> None:
        self.url = f"http://127.0.0.1:{unused_port()}"
        self._process = subprocess.Popen(
            [*MAIN, f"--config.file={config}", f"--web.listen-address={self.url.removeprefix('http://')}", *words],
            env=ENV,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 20
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/-/healthy", timeout=2):
                    return
            except OSError:
                assert self._process.poll() is None, self._process.communicate()[1]
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self) -> tuple[int, str]:
        self._process.send_signal(signal.SIGTERM)
        _, log = self._process.communicate(timeout=20)
        return self._process.returncode, log


@pytest.fixture
def running(config: Path) -> Iterator[Running]:
    started = Running(config)
    yield started
    started.stop()


def test_check_and_every_problem_at_once(config: Path, tmp_path: Path) -> None:
    good = run(f"--config.file={config}", "--config.check")
    assert (good.returncode, good.stderr) == (0, "")
    assert "mode observe, 1 targets" in good.stdout
    bad = tmp_path / "bad.yml"
    bad.write_text("mode: atc\nexporter: nonsense\ntargets: [{name: a}]\n")
    refused = run(f"--config.file={bad}", "--config.check")
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    for words in ("mode", "exporter", "journal", "targets[0]"):
        assert words in refused.stderr


def test_act_on_an_open_address_needs_credentials(config: Path) -> None:
    config.write_text(config.read_text() + "mode: act\nalertmanagers: [http://127.0.0.1:9]\n")
    refused = run(f"--config.file={config}", "--web.listen-address=0.0.0.0:10141", "--config.check")
    assert refused.returncode == 2
    assert "without credentials" in refused.stderr


def test_it_serves_and_ends_cleanly(config: Path) -> None:
    started = Running(config)
    code, log = started.stop()
    assert code == 0
    assert "Traceback" not in log


def test_a_second_one_is_refused_and_says_who_owns_the_journal(config: Path, running: Running) -> None:
    second = run(f"--config.file={config}", f"--web.listen-address=127.0.0.1:{unused_port()}")
    assert second.returncode == 1
    assert "belongs to another llm-remediator" in second.stderr


def test_asking_a_running_one(config: Path, running: Running) -> None:
    where = (f"--config.file={config}", f"--url={running.url}")
    status = run("status", *where)
    assert status.returncode == 0, status.stderr
    assert "mode observe" in status.stdout
    assert "llm/a: unknown" in status.stdout
    found = json.loads(run("status", *where, "--json").stdout)
    assert found["targets"][0]["name"] == "llm/a"
    paused = run("pause", "llm/a", "--for=2h", "--reason=maintenance", *where)
    assert (paused.returncode, paused.stdout[:22]) == (0, "llm/a: paused until 20")
    drill = run("drill", "llm/a", *where)
    assert drill.returncode == 0, drill.stderr
    assert "nothing was restarted" in drill.stdout
    assert "REFUSE  pause" in drill.stdout or "REFUSE" in drill.stdout
    assert run("resume", "llm/a", *where).returncode == 0
    again = run("resume", "llm/a", *where)
    assert again.returncode == 1
    assert "not paused" in again.stderr
    latched = run("rearm", "llm/a", *where)
    assert latched.returncode in (0, 1)
    nothing = run("approve", "llm/a", "--by=kim", *where)
    assert (nothing.returncode, "nothing awaits approval" in nothing.stderr) == (1, True)
    unknown = run("pause", "nope", *where)
    assert unknown.returncode == 2
    assert "there are: llm/a" in unknown.stderr
    journal = run("journal", f"--config.file={config}", "--json")
    assert journal.returncode == 0, journal.stderr
    assert all(json.loads(line)["target"] == "llm/a" for line in journal.stdout.splitlines())
    report = run("report", f"--config.file={config}", "--since=1h")
    assert "0 restarts made" in report.stdout


def test_text_of_others_cannot_steer_the_terminal(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def say(*_: object, **__: object) -> str:
        return "name\x1b]0;owned\x07\n\x1b[31mred\x1b[0m\tlog\r\n"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("llm_remediator.inquiries.journal_text", say)
        assert cli.main(["journal", f"--config.file={config}"]) == 0
    assert capsys.readouterr().out == "name?]0;owned?\nred     log\n"


@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_reader_that_has_left_is_no_fault(config: Path, running: Running, buffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    words = ["status", f"--config.file={config}", f"--url={running.url}"]
    environment = {**ENV, "PYTHONUNBUFFERED": buffered}
    ended = subprocess.run([*MAIN, *words], env=environment, stdout=writing, stderr=subprocess.PIPE, timeout=30, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_ctrl_c_ends_a_question_without_a_traceback(config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        asking = subprocess.Popen(
            [*MAIN, "status", f"--config.file={config}", f"--url={url}"], env=ENV, stderr=subprocess.PIPE, text=True
        )
        silent.settimeout(20)
        accepted, _ = silent.accept()
        with accepted:
            asking.send_signal(signal.SIGINT)
            _, said = asking.communicate(timeout=20)
    assert asking.returncode == 130
    assert "Traceback" not in said


def test_status_without_a_running_one_reads_the_journal(config: Path) -> None:
    nothing = run("status", f"--config.file={config}", f"--url=http://127.0.0.1:{unused_port()}")
    assert nothing.returncode == 1
    assert "no journal there" in nothing.stderr
    Running(config).stop()
    asked = run("status", f"--config.file={config}", f"--url=http://127.0.0.1:{unused_port()}")
    assert asked.returncode == 1
    assert "connection refused" in asked.stderr
    assert "llm/a:" in asked.stdout


def test_the_token_is_found_in_the_web_config_beside_the_configuration(config: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret")
    web_config = tmp_path / "remediator-web.yml"
    web_config.write_text(f"bearer_token_file: {tmp_path}/token\n")
    started = Running(config, f"--web.config.file={web_config}")
    try:
        assert run("status", f"--config.file={config}", f"--url={started.url}").returncode == 0
        (tmp_path / "wrong").write_text("wrong")
        refused = run("status", f"--config.file={config}", f"--url={started.url}", f"--token-file={tmp_path}/wrong")
        assert refused.returncode == 1
        assert "401" in refused.stderr
    finally:
        started.stop()


def test_usage() -> None:
    assert run("--help").returncode == 0
    for command in ("status", "journal", "report", "drill", "pause", "resume", "rearm", "approve", "socket-proxy"):
        shown = run(command, "--help")
        assert shown.returncode == 0
        assert command in run("--help").stdout
    assert run("nonsense").returncode == 2
    assert run("report", "--config.file=/nowhere", "--since=soon").returncode == 2


def test_neither_a_hangup_nor_a_broken_compressed_body_ends_it_or_leaves_a_traceback(config: Path) -> None:
    running = Running(config)
    running.send(signal.SIGHUP)
    request = urllib.request.Request(f"{running.url}/api/v1/alerts", b"not gzip", {"Content-Encoding": "gzip"})
    with pytest.raises(urllib.error.HTTPError, match="415"):
        urllib.request.urlopen(request, timeout=5)
    with urllib.request.urlopen(f"{running.url}/-/healthy", timeout=5) as answer:
        assert answer.status == 200
    code, log = running.stop()
    assert code == 0
    assert "SIGHUP is ignored: restart llm-remediator" in log
    assert "Traceback" not in log


async def test_the_socket_proxy_is_a_process_of_its_own(tmp_path: Path) -> None:
    """Without a Docker Engine behind it: it refuses first, and says what it cannot reach."""
    path = tmp_path / "p.sock"
    process = await asyncio.create_subprocess_exec(
        *MAIN, "socket-proxy", f"--listen=unix:{path}", f"--socket={tmp_path}/none.sock", env=ENV, stderr=subprocess.PIPE
    )
    try:
        async with asyncio.timeout(20):
            while not path.is_socket():
                await asyncio.sleep(0.05)
            assert oct(path.stat().st_mode)[-3:] == "660"
            for request, status in {"POST /containers/create": 403, "GET /_ping": 502}.items():
                assert await ask(path, request) == status
    finally:
        process.terminate()
        await process.communicate()
    assert process.returncode == 0


async def ask(path: Path, request: str) -> int:
    for _ in range(50):  # the socket file is there a moment before it listens
        try:
            reader, writer = await asyncio.open_unix_connection(str(path))
            break
        except ConnectionRefusedError:
            await asyncio.sleep(0.05)
    writer.write(f"{request} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
    line: Any = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return int(line.split()[1])


def test_a_mistyped_command_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["staus"]) == 2
    said = capsys.readouterr().err
    assert "'staus' is no command" in said
    assert "status, journal, report" in said
