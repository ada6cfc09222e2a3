"""The load generator, the fault injector and the command line."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

import pytest

from demo.recorded import value
from demo.sim_server import DEMO, SimServer, until
from llm_sim import settings, traffic
from loopback import free_port


async def command(module: str, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        env={**os.environ, "PYTHONPATH": str(DEMO)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_traffic_saturates_and_ends_by_itself(tmp_path: Path) -> None:
    async with SimServer(tmp_path, "--decode-tokens-per-second", "100", "--slots", "3") as server:
        load = await command(
            "llm_sim.traffic", server.url, "--concurrency", "8", "--max-tokens", "40", "--for", "2s", "--stream"
        )
        page = await until(server.page, lambda seen: value(seen, "vllm:num_requests_waiting") == 5)
        assert value(page, "vllm:num_requests_running") == 3
        output, _ = await load.communicate()
        assert load.returncode == 0
        assert "x HTTP 200" in output.decode()
        await until(server.page, lambda seen: value(seen, "vllm:num_requests_running") == 0)


async def test_traffic_outlives_a_server_that_is_not_there_and_stops_after_its_requests(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    load = await command("llm_sim.traffic", url, "--concurrency", "2", "--requests", "2")
    output, _ = await load.communicate()
    assert output.decode() == "2 requests sent: 2 x ClientConnectorError\n"


@pytest.mark.parametrize("url", ["http://8.8.8.8:80", "http://[2001:4860:4860::8888]/"])
def test_traffic_refuses_public_addresses(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert traffic.main([url]) == 2
    assert "public address" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://172.18.0.3", "http://localhost:1"])
def test_traffic_accepts_local_addresses(url: str) -> None:
    traffic.check_address(url)


@pytest.mark.parametrize(("text", "expected"), [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("0.5s", 0.5)])
def test_reads_durations(text: str, expected: float) -> None:
    assert traffic.seconds(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "5x", "m"])
def test_refuses_what_is_no_duration(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not a duration"):
        traffic.seconds(text)


async def test_a_fault_is_injected_by_port(tmp_path: Path) -> None:
    async with SimServer(tmp_path) as server:
        pids = str(tmp_path / "pids.json")
        for action in ("hang", "continue", "kill"):
            process = await command("llm_sim.fault", action, "--pids-file", pids)
            output, _ = await process.communicate()
            assert process.returncode == 0
            assert output.decode().startswith(f"{action}: engine process ")
        await until(server.health, lambda status: status == 503)


async def test_a_fault_says_what_is_missing(tmp_path: Path) -> None:
    process = await command("llm_sim.fault", "hang", "--pids-file", str(tmp_path / "none.json"))
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert "no simulated server on port 8000; give --port" in errors.decode()


def test_the_command_line_refuses_a_cache_too_small_for_one_request(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        settings.parse(["--kv-blocks", "10", "--max-model-len", "1000"])
    assert "raise the first or lower the second" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--slots", "0"], ["--prefill-tokens-per-second", "0"], ["--load-seconds", "-1"]])
def test_the_command_line_refuses_impossible_numbers(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        settings.parse(arguments)
