"""The heartbeat inside a real vLLM: middleware, both plugins, an API key, streams, a long prefill, two API servers."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engines import lab

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-heartbeat"
# From the innermost to the outermost.
MIDDLEWARE = [
    word
    for name in ("Block", "Inside", "", "Outside")
    for word in ("--middleware", f"blocking_middleware.{name}" if name else "llm_heartbeat.Middleware")
]
ON = {"LLM_HEARTBEAT_VLLM_STARTUP": "1", "LLM_HEARTBEAT_VLLM_STEPS": "1", "LLM_HEARTBEAT_LIVE_AFTER": "1500ms"}

Port = Callable[[], int]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A `PYTHONPATH` where vLLM finds our package and its entry points, as after `pip install`; nothing else is touched."""
    site = tmp_path_factory.mktemp("site")
    metadata = site / "stuckproof-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: stuckproof\nVersion: 0\n")
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    lines = [line for group, points in groups.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in points.items()))]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return f"{site}:{ROOT / 'heartbeat'}:{ROOT / 'tests' / 'engines' / 'heartbeat_plugins'}"


def metrics(port: int) -> dict[str, float]:
    status, body = lab.get(port, "/metrics")
    assert status == 200
    lines = (line.rpartition(" ") for line in body.decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def total(found: dict[str, float], family: str) -> float:
    return sum(value for name, value in found.items() if name.partition("{")[0] == family)


def health(port: int, endpoint: str) -> tuple[int, dict[str, Any]]:
    status, body = lab.get(port, f"/healthz/{endpoint}")
    return status, json.loads(body)


def streamed(port: int, tokens: int, extra: dict[str, Any] | None = None) -> bytes:
    """The body of a completion, whole."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    body = {
        "model": "small",
        "prompt": [5, 6, 7],
        "max_tokens": tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
    }
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}", "X-Request-Id": "same"}
    connection.request("POST", "/v1/completions", json.dumps(body | (extra or {})), headers)
    response = connection.getresponse()
    assert response.status == 200
    received = response.read()
    connection.close()
    return received


@pytest.fixture(scope="module")
def engine(free_port: Port, tmp_path_factory: pytest.TempPathFactory, installed: str) -> Iterator[tuple[lab.Engine, int]]:
    """A vLLM with everything on; module-wide, since each start takes half a minute."""
    side = free_port()
    home = tmp_path_factory.mktemp("vllm")
    env = ON | {"PYTHONPATH": installed, "LLM_HEARTBEAT_LISTEN": f"127.0.0.1:{side}", "LLM_HEARTBEAT_READY_QUEUE": "3"}
    arguments = [*MIDDLEWARE, "--max-num-seqs", "2", "--shutdown-timeout", "60"]
    made = lab.vllm(free_port(), home / "engine.log", *arguments, model="small", env=env, key=KEY)
    made.launch()
    # While the weights load: the main port refuses, the side port says why.
    lab.wait_for("the side port answers while vLLM loads", lambda: reachable(side), lab.START_SECONDS)
    status, body = health(side, "startup")
    assert not lab.answers(made.port)
    assert (status, body["failed"], body["reason"]) == (503, ["model_loading"], "vLLM loads the model")
    assert health(side, "live")[0] == 200
    made.wait_ready()
    yield made, side
    made.stop()


def reachable(port: int) -> bool:
    try:
        lab.get(port, "/healthz/live", timeout=2)
    except OSError:
        return False
    return True


def test_endpoints_need_no_key_and_everything_else_does(engine: tuple[lab.Engine, int]) -> None:
    vllm, side = engine
    for endpoint in ("startup", "live", "ready"):
        assert health(vllm.port, endpoint)[0] == 200
        assert health(side, endpoint)[0] == 200
    assert lab.get(vllm.port, "/v1/models")[0] == 401
    assert lab.get(vllm.port, "/v1/models", headers={"Authorization": f"Bearer {KEY}"})[0] == 200
    assert lab.get(vllm.port, "/health")[0] == 200


def test_gauges_are_on_vllms_own_metrics(engine: tuple[lab.Engine, int]) -> None:
    vllm, side = engine
    lab.wait_for("the gauges", lambda: metrics(vllm.port).get("llm_health_ready") == 1, 20)
    for port in (vllm.port, side):
        found = metrics(port)
        assert found["llm_health_live"] == found["llm_health_ready"] == found["llm_health_startup"] == 1
        assert found["llm_event_loop_blocked_seconds"] == 0
        assert found["llm_event_loop_lag_seconds"] < 10
        assert found["llm_health_queue_limit"] == 3
        assert "vllm:num_requests_waiting" in {name.partition("{")[0] for name in found}


def test_streams_pass_as_the_very_same_messages(engine: tuple[lab.Engine, int]) -> None:
    """Two vLLMs cannot be compared (their random models differ in the last bits), two sides of our middleware can."""
    vllm, _ = engine
    for extra in ({}, {"stream_options": {"include_usage": True}}, {"stream": False}):
        assert b'"text"' in streamed(vllm.port, 60, extra)
    messages, same = lab.get(vllm.port, "/seen")[1].split()
    assert int(messages) > 20  # vLLM joins tokens into one message where it is behind
    assert same == b"True"


def test_the_queue_is_vllms_and_turns_ready_off(engine: tuple[lab.Engine, int]) -> None:
    vllm, side = engine
    requests = lab.send(vllm, 16, tokens=7000)
    lab.wait_for("ready is off", lambda: health(side, "ready")[0] == 503, 60)
    body = health(side, "ready")[1]
    assert body["failed"] == ["queue_full"]
    assert body["checks"]["queue_depth"] >= 3
    assert health(side, "live")[0] == 200
    for request in requests:
        request.abort()
    lab.wait_for("ready again, after the hold", lambda: health(side, "ready")[0] == 200, 60)
    assert [c["to"] for c in health(side, "ready")[1]["changes"] if c["endpoint"] == "ready"][-2:] == ["failed", "ok"]


def test_a_blocked_loop_is_seen_on_the_side_port_with_its_culprit(engine: tuple[lab.Engine, int]) -> None:
    vllm, side = engine
    blocked = threading.Thread(target=lambda: lab.get(vllm.port, "/block?4", timeout=60))
    blocked.start()
    lab.wait_for("live is off", lambda: health(side, "live")[0] == 503, 20, every=0.05)
    body = health(side, "live")[1]
    assert body["culprit"]["function"] == "Block.__call__"
    lab.wait_for("lag above 2.5 s", lambda: metrics(side)["llm_event_loop_lag_seconds"] > 2.5, 20, every=0.05)
    blocked.join()
    lab.wait_for("live again", lambda: health(side, "live")[0] == 200, 20)
    assert metrics(vllm.port)["llm_event_loop_lag_seconds"] > 2.5
    assert metrics(vllm.port)['llm_event_loop_blocked_by_total{function="blocking_middleware.Block.__call__"}'] == 1


def test_sigterm_drains_the_stream_and_ready_is_off_meanwhile(engine: tuple[lab.Engine, int]) -> None:
    """Last of this engine: it ends it."""
    vllm, side = engine
    streams: list[bytes] = []
    thread = threading.Thread(target=lambda: streams.append(streamed(vllm.port, 4000)))
    thread.start()
    lab.wait_for("in flight", lambda: health(side, "ready")[1]["checks"]["inflight"] == 1, 60)
    # What reaches vLLM's engine after SIGTERM is rejected, or never answered once the engine has ended without work.
    lab.wait_for("the engine works", lambda: total(metrics(vllm.port), "vllm:num_requests_running") == 1, 60)
    os.kill(vllm.pid, signal.SIGTERM)
    lab.wait_for("ready is off", lambda: health(side, "ready")[0] == 503, 20, every=0.05)
    assert health(side, "ready")[1]["failed"] == ["draining"]
    assert thread.is_alive(), "the stream must still be going on"
    thread.join(120)
    assert streams[0].rstrip().endswith(b"data: [DONE]")
    assert vllm.process is not None
    vllm.process.wait(60)


def test_installed_but_off_does_nothing(free_port: Port, tmp_path: Path, installed: str) -> None:
    plain = lab.vllm(free_port(), tmp_path / "plain.log", env={"PYTHONPATH": installed}, key=KEY)
    try:
        plain.start()
        lab.send(plain, 1, tokens=20)[0].join(180)
        assert lab.get(plain.port, "/healthz/live")[0] == 404
        assert not [name for name in metrics(plain.port) if name.startswith("llm_")]
        assert "Failed to load plugin" not in plain.log.read_text()
    finally:
        plain.stop()


def test_steps_rise_in_a_long_prefill_where_vllms_own_counters_stand_still(
    free_port: Port, tmp_path: Path, installed: str
) -> None:
    env = ON | {"PYTHONPATH": installed}
    engine = lab.vllm(free_port(), tmp_path / "slow.log", "--max-num-batched-tokens", "1024", model="slow", env=env)
    try:
        engine.start()
        lab.send(engine, 1, tokens=4)[0].join(300)
        before = metrics(engine.port)
        (request,) = lab.send(engine, 1, prompt=20000, tokens=2)
        seen: list[tuple[float, float, float]] = []
        while not request.ended:
            found = metrics(engine.port)
            seen.append(
                (
                    total(found, "llm_engine_steps_total"),
                    total(found, "vllm:iteration_tokens_total_count"),
                    total(found, "vllm:generation_tokens_total"),
                )
            )
            time.sleep(0.5)
        first = total(before, "llm_engine_steps_total")
        flat = [
            steps
            for steps, count, made in seen
            if (count, made)
            == (total(before, "vllm:iteration_tokens_total_count"), total(before, "vllm:generation_tokens_total"))
        ]
        assert request.status == 200
        # 20,000 tokens in chunks of 1,024: twenty steps, the last of which makes the first token.
        assert len(set(flat)) >= 10, seen
        assert max(flat) - first >= 15, seen
        assert 'llm_engine_steps_total{lane="0"}' in metrics(engine.port)
        print(f"steps {first:.0f} -> {max(flat):.0f} over {len(flat)} looks while vLLM's own counters stood still")
    finally:
        engine.stop()


def test_two_api_servers_share_metrics_and_the_side_port(free_port: Port, tmp_path: Path, installed: str) -> None:
    side = free_port()
    env = ON | {"PYTHONPATH": installed, "LLM_HEARTBEAT_LISTEN": f"127.0.0.1:{side}"}
    engine = lab.vllm(free_port(), tmp_path / "two.log", *MIDDLEWARE, "--api-server-count", "2", env=env)
    engine.launch()
    try:
        lab.wait_for("the side port answers while vLLM loads", lambda: reachable(side), lab.START_SECONDS)
        assert health(side, "startup")[0] == 503
        engine.wait_ready()
        lab.wait_for("both are known", lambda: len(health(side, "live")[1].get("processes", [])) == 2, 60)
        for endpoint in ("startup", "live", "ready"):
            lab.wait_for(endpoint, lambda endpoint=endpoint: health(side, endpoint)[0] == 200, 10)
            for _ in range(4):  # whichever of them answers
                assert health(engine.port, endpoint)[0] == 200
        before = metrics(engine.port)
        assert before["llm_health_live"] == 1
        for request in lab.send(engine, 4, tokens=50):
            request.join(300)
        after = metrics(engine.port)
        assert total(after, "llm_engine_steps_total") - total(before, "llm_engine_steps_total") >= 50
        blocked = threading.Thread(target=lambda: lab.get(engine.port, "/block?4", timeout=60))
        blocked.start()
        lab.wait_for("live is off for one of the two", lambda: health(side, "live")[0] == 503, 20, every=0.05)
        lab.wait_for("the culprit", lambda: health(side, "live")[1]["culprit"], 20, every=0.05)
        assert health(side, "live")[1]["culprit"]["function"] == "Block.__call__"
        assert health(side, "ready")[0] == 200, "the other one serves"
        lab.wait_for("the gauge of the blocked one", lambda: metrics(side)["llm_health_live"] == 0, 20, every=0.05)
        blocked.join()
        lab.wait_for("live again", lambda: health(side, "live")[0] == 200, 20)
    finally:
        engine.stop()
