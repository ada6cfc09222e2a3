"""The command line as people run it: its own process, real servers, exit statuses, output."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from exporter.engine_server import Engine, serving
from llm_exporter import check as checking
from llm_exporter.arguments import serve_parser
from llm_exporter.cli import main
from llm_exporter.shard import Shard
from llm_exporter.target_config import Target
from loopback import free_port

RECORDINGS = Path(__file__).parent.parent / "recordings"
ROOT = Path(__file__).parent.parent.parent
ENV = {**os.environ, "PYTHONPATH": f"{ROOT}/common:{ROOT}/exporter"}


async def run(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "llm_exporter", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=ENV,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def working(engine: Engine) -> AsyncIterator[None]:
    """The engine makes steps all the time."""

    async def work() -> None:
        while True:
            engine.work()
            await asyncio.sleep(0.05)

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def quick(tmp_path: Path) -> str:
    path = tmp_path / "quick.yml"
    path.write_text(
        "defaults: {interval: 500ms, timeout: 490ms, stalled_after: 1500ms, stuck_after: 3s, start_grace: 0s,"
        " canary: {timeout: 400ms, every: 2s}}\ntargets: [{name: a, url: 'http://127.0.0.1:1'}]\n"
    )
    return str(path)


async def test_check_of_a_saturated_server_says_busy_with_the_rate_and_sends_nothing() -> None:
    async with serving(Engine(running=12, waiting=40)) as engine, working(engine):
        code, out, err = await run("check", engine.base)
        asked = engine.asked["/v1/completions"]
    assert (code, err, asked) == (0, "", 0)
    first = out.splitlines()[0]
    assert first.startswith("busy: 12 running, 40 waiting, ")
    assert re.search(r" tokens/s over [\d.]+s; no request sent$", first)
    assert "vllm:iteration_tokens_total_count" in out


async def test_check_says_at_most_stalled_without_the_time(quick: str) -> None:
    async with serving(Engine(running=4, steps=7, tokens=7)) as engine:
        code, out, _ = await run("check", engine.base, "--config.file", quick)
        assert engine.asked["/v1/completions"] == 0
    assert code == 1
    assert out.startswith("stalled: 4 running, 0 waiting, nothing moved")
    assert re.search(r"to know more: --for \S+ watches until its bound", out)
    assert "to know more: --canary lets it be asked for one token" in out


@pytest.mark.parametrize("canary", [False, True])
async def test_check_says_stuck_with_the_evidence_when_given_the_time(quick: str, canary: bool) -> None:
    async with serving(Engine(running=4, steps=7, tokens=7, canary_hangs=True)) as engine:
        options = ["--for", "3s", *(["--canary"] if canary else [])]
        code, out, _ = await run("check", engine.base, "--config.file", quick, *options)
        assert engine.asked["/v1/completions"] == int(canary)
    assert code == 1
    assert out.startswith("stuck: 4 running, 0 waiting, nothing moved")
    assert "vllm:generation_tokens_total = 7" in out
    assert ("1 canary request sent" in out or "canary got no answer" in out) is canary


async def test_check_may_verify_an_idle_server_by_one_canary(quick: str) -> None:
    async with serving(Engine(steps=7, tokens=7)) as engine:
        code, out, _ = await run("check", engine.base, "--config.file", quick)
        assert (code, "not verified" in out, engine.asked["/v1/completions"]) == (0, True, 0)
        code, out, _ = await run("check", engine.base, "--config.file", quick, "--canary", "--json")
        assert (code, engine.asked["/v1/completions"]) == (0, 1)
    said = json.loads(out)
    assert (said["state"], said["canaries_sent"]) == ("idle", 1)
    assert "verified" in said["reason"]


@pytest.mark.parametrize(
    "change, code, words",
    [
        (lambda engine: setattr(engine, "status", 401), 2, "bearer_token_file"),
        (lambda engine: setattr(engine, "page", "python_info 1\n"), 2, "--disable-log-stats"),
        (lambda engine: setattr(engine, "metrics_hang", True), 2, "unreachable: "),
        (lambda engine: setattr(engine, "status", 503), 0, "starting: "),
    ],
    ids=["401", "no-series", "timeout", "loading"],
)
async def test_check_names_the_mend(quick: str, change: Callable[[Engine], None], code: int, words: str) -> None:
    async with serving(Engine(running=1)) as engine:
        change(engine)
        status, out, _ = await run("check", engine.base, "--config.file", quick)
    assert status == code
    assert words in out


async def test_check_of_a_closed_port_is_down() -> None:
    code, out, _ = await run("check", f"http://127.0.0.1:{free_port()}")
    assert code == 1
    assert out.startswith("down: connection refused")


async def test_a_recording_is_readable_and_replays_to_the_same_state(tmp_path: Path, quick: str) -> None:
    path = tmp_path / "r.jsonl.gz"
    async with serving(Engine(running=4)) as engine, working(engine):
        code, _, err = await run("record", engine.base, "--for", "3s", "--interval", "500ms", "-o", str(path))
        assert engine.asked["/v1/completions"] == 0
    assert code == 0
    assert "looks in" in err
    records = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    looks = [record for record in records if "metrics" in record]
    assert 5 <= len(looks) <= 8
    assert set(looks[0]["metrics"]) <= {"status", "seconds", "ctype", "body", "headers"}
    assert {"t", "unix", "metrics", "health"} <= set(looks[0])
    assert next(record["about"] for record in records if "about" in record)["version"] == "0.32.0"
    code, out, _ = await run("replay", str(path), "--config.file", quick)
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert len(lines) == len(looks)
    assert {line["state"] for line in lines} == {"busy"}
    assert set(lines[0]) == {"t", "target", "lane", "state", "reason", "progress", "held", "stalled_seconds"}


async def test_replay_of_every_recording_prints_a_line_per_look_at_least(capsys: pytest.CaptureFixture[str]) -> None:
    for path in sorted(RECORDINGS.glob("*.jsonl.gz")):
        looks = sum(1 for line in gzip.decompress(path.read_bytes()).splitlines() if b'"metrics"' in line)
        assert main(["replay", str(path)]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert len(lines) >= looks
        assert all(line["progress"] in (0, 1, None) for line in lines)


def test_a_reader_of_a_replay_that_leaves_is_no_error_of_the_recording() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    path = RECORDINGS / "vllm-idle-busy-idle.jsonl.gz"
    command = [sys.executable, "-m", "llm_exporter", "replay", str(path)]
    try:
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=ENV, timeout=60, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr.decode()) == (141, "")


@pytest.mark.parametrize("cut", [0.3, 0.9])
def test_a_recording_that_was_cut_off_replays_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cut: float
) -> None:
    whole = (RECORDINGS / "vllm-idle-busy-idle.jsonl.gz").read_bytes()
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(whole[: int(cut * len(whole))])
    assert main(["replay", str(path)]) == 0
    assert capsys.readouterr().out.count("\n") > 3
    path.write_bytes(whole[:200] + b"garbage" + whole[207:])
    assert main(["replay", str(path)]) == 2
    assert "cut.jsonl.gz" in capsys.readouterr().err


def test_replay_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str], quick: str) -> None:
    assert main(["replay", str(tmp_path / "none.jsonl")]) == 2
    assert "cannot be read" in capsys.readouterr().err
    (tmp_path / "bad.jsonl").write_text('{"t": 0, "metrics": {}}\nnonsense\n{"t": 1}\n')
    assert main(["replay", str(tmp_path / "bad.jsonl")]) == 2
    assert "line 2" in capsys.readouterr().err
    assert main(["replay", str(tmp_path / "bad.jsonl"), "--config.file", quick, "--target", "b"]) == 2
    assert "it has: a" in capsys.readouterr().err
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    assert main(["replay", str(tmp_path / "other.jsonl")]) == 2
    assert "holds no look at a server" in capsys.readouterr().err


def test_a_mistyped_command_is_not_watched_as_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chekc", "http://127.0.0.1:1"]) == 2
    assert "'chekc' is no command (check, record, replay, watch)" in capsys.readouterr().err


def test_a_wrong_configuration_prints_every_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "e.yml"
    path.write_text("targets: [{nam: a}, {url: 'ftp://x', url: 'ftp://x'}]\n")
    assert main(["--config.file", str(path), "--config.check"]) == 2
    err = capsys.readouterr().err
    assert "targets[0].url: is required" in err
    assert "targets[0].nam: unknown key; did you mean name?" in err
    assert "targets[1].url: 'ftp://x': only http and https" in err
    assert "targets[1].url: is on line 1 and on line 1 already" in err
    assert main([]) == 2
    assert "give either URLs of servers or --config.file" in capsys.readouterr().err
    assert main(["http://a:1", "--web.listen-address", "nonsense"]) == 2
    assert "HOST:PORT" in capsys.readouterr().err


async def test_config_check_tries_the_canarys_path_and_runs_no_model(tmp_path: Path) -> None:
    path = tmp_path / "e.yml"
    async with serving(Engine(running=1)) as engine, serving(Engine(canary_status=401)) as locked:
        path.write_text(f"targets: [{{name: a, url: '{engine.base}'}}, {{name: b, url: '{locked.base}'}}]\n")
        code, out, _ = await run("--config.file", str(path), "--config.check")
        assert engine.canary_bodies == [{}]
    assert code == 0
    assert "a: vllm, busy" in out
    assert "/v1/completions is there" in out
    assert "b: vllm, idle" in out
    assert "401, it needs a key: give canary.api_key_file" in out
    assert "the configuration is valid: 2 targets" in out


async def _serving(*arguments: str) -> tuple[asyncio.subprocess.Process, str]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "llm_exporter", *arguments, "--web.listen-address", f"127.0.0.1:{port}",
        "--log.format", "json", stderr=asyncio.subprocess.PIPE, env=ENV,
    )  # fmt: skip
    return process, f"http://127.0.0.1:{port}"


async def poll(check: Callable[[], Awaitable[bool]]) -> None:
    deadline = asyncio.get_running_loop().time() + 20
    while not await check():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.05)


async def test_it_serves_urls_without_a_file_and_ends_cleanly_on_sigterm() -> None:
    async with serving(Engine(running=2)) as engine, working(engine), aiohttp.ClientSession() as session:
        process, base = await _serving(engine.base)

        async def ready() -> bool:
            try:
                async with session.get(f"{base}/-/ready") as response:
                    return response.status == 200
            except aiohttp.ClientConnectionError:
                return False

        await poll(ready)
        async with session.get(f"{base}/api/v1/targets") as response:
            target = (await response.json())["targets"][0]
        assert (target["name"], target["kind"], target["state"]) == (engine.base.removeprefix("http://"), "vllm", "busy")
        process.send_signal(signal.SIGTERM)
        _, err = await asyncio.wait_for(process.communicate(), 10)
    assert process.returncode == 0
    assert [json.loads(line)["level"] for line in err.splitlines()].count("error") == 0


async def test_sighup_reloads_and_a_bad_file_keeps_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "e.yml"
    async with serving(Engine(running=2)) as engine, aiohttp.ClientSession() as session:
        path.write_text(f"defaults: {{interval: 200ms, timeout: 100ms}}\ntargets: [{{name: a, url: '{engine.base}'}}]\n")
        process, base = await _serving("--config.file", str(path))

        async def names(*expected: str) -> bool:
            try:
                async with session.get(f"{base}/api/v1/targets") as response:
                    return tuple(target["name"] for target in (await response.json())["targets"]) == expected
            except aiohttp.ClientConnectionError:
                return False

        async def metric(line: str) -> bool:
            async with session.get(f"{base}/metrics") as response:
                return line in await response.text()

        try:
            await poll(lambda: names("a"))
            path.write_text(path.read_text() + "nonsense: 1\n")
            process.send_signal(signal.SIGHUP)
            await poll(lambda: metric("llm_exporter_config_last_reload_successful 0"))
            assert await names("a")
            path.write_text(f"targets: [{{name: a, url: '{engine.base}'}}, {{name: b, url: '{engine.base}/b'}}]\n")
            process.send_signal(signal.SIGHUP)
            await poll(lambda: names("a", "b"))
            assert await metric("llm_exporter_config_last_reload_successful 1")
        finally:
            process.send_signal(signal.SIGTERM)
            _, err = await asyncio.wait_for(process.communicate(), 10)
    assert process.returncode == 0
    assert "nonsense: unknown key" in err.decode()


async def test_a_taken_port_is_one_sentence_and_no_traceback() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        code, _, err = await run("http://127.0.0.1:1", "--web.listen-address", f"127.0.0.1:{port}")
    assert code == 2
    assert "cannot listen on" in err
    assert "Traceback" not in err


async def test_watch_without_a_terminal_prints_changes_of_state_only() -> None:
    async with serving(Engine(running=2)) as engine, working(engine):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "llm_exporter", "watch", engine.base, stdout=asyncio.subprocess.PIPE, env=ENV
        )
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 20)).decode()
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), 10)
        assert engine.asked["/v1/completions"] == 0
    assert "busy: 2 running" in line
    assert "\x1b" not in line
    assert process.returncode == 130


@pytest.mark.parametrize("text", ["3/3", "1", "a/b", "-1/3", "0/0"])
def test_a_wrong_shard_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        serve_parser().parse_args([f"--shard={text}", "http://a:1"])
    assert "write I/N" in capsys.readouterr().err


def test_every_target_is_in_exactly_one_shard_and_shards_are_even() -> None:
    names = [f"target-{n}" for n in range(3000)]
    owners = [[shard for shard in range(3) if Shard(shard, 3).mine(name)] for name in names]
    assert all(len(owner) == 1 for owner in owners)
    assert all(900 < sum(owner == [shard] for owner in owners) < 1100 for shard in range(3))


async def test_discovered_targets_appear_and_vanish_while_it_serves(tmp_path: Path) -> None:
    listed, path = tmp_path / "sd.json", tmp_path / "e.yml"
    async with serving(Engine(running=1)) as one, serving(Engine(running=2)) as two, aiohttp.ClientSession() as session:
        hosts = [engine.base.removeprefix("http://") for engine in (one, two)]
        listed.write_text(json.dumps([{"targets": hosts[:1], "labels": {"team": "x"}}]))
        path.write_text(
            "defaults: {interval: 200ms, timeout: 100ms, canary: {idle: off}}\n"
            f"discovery: {{grace: 1s, file_sd: [{{files: ['{listed}'], refresh: 1s}}]}}\n"
        )
        process, base = await _serving("--config.file", str(path))

        async def names(*expected: str) -> bool:
            try:
                async with session.get(f"{base}/api/v1/targets") as response:
                    return {target["name"] for target in (await response.json())["targets"]} == set(expected)
            except aiohttp.ClientConnectionError:
                return False

        try:
            await poll(lambda: names(hosts[0]))
            listed.write_text(json.dumps([{"targets": hosts}]))
            await poll(lambda: names(*hosts))
            async with session.get(f"{base}/metrics") as response:
                page = await response.text()
            assert f'llm_exporter_discovery_up{{source="file_sd {listed}"}} 1' in page
            listed.write_text(json.dumps([{"targets": hosts[1:]}]))
            await poll(lambda: names(hosts[1]))
        finally:
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.communicate(), 10)
    assert process.returncode == 0


async def test_a_check_hurries_between_its_looks_and_not_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """llama-server's page may wait for a decode; what takes longer than the check's short pause is no time-out yet."""
    monkeypatch.setattr(checking, "PAUSE", 0.1)
    async with serving(Engine(steps=7, tokens=7, metrics_seconds=0.3)) as engine:
        checked = await checking.check(Target("t", engine.base), None, canary=False)
    assert checked.snapshot.verdict.state == "idle"
