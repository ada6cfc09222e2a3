"""Pages of real engines, played to a real llm-exporter, scraped by a real Prometheus: the alerts that come of it.

The bounds are those of the recordings' own table, a thirtieth of the defaults; the rules' durations a twentieth of theirs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from loopback import free_port
from rules.recorded import RecordedServer
from rules.scenes import RULES, alert_rules
from rules.servers import get, prometheus, running, until
from rules.shorten import shortened_rules
from rules.spans import spans

SPEED = 20.0
LENGTH = 55.0
"""Seconds of the recordings that are played."""

NAMES = (
    "vllm-idle-busy-idle",
    "vllm-engine-core-stopped-while-busy",
    "vllm-long-prefill",
    "vllm-solo-long-prefill",
    "vllm-clients-abort-while-busy",
    "vllm-api-server-stopped",
    "vllm-engine-core-killed",
    "vllm-sigterm-while-busy",
    "vllm-log-stats-disabled",
    "vllm-two-api-servers-busy",
    "llamacpp-idle-busy-idle",
    "llamacpp-long-prefill",
    "llamacpp-process-stopped-while-busy",
)
STUCK = "vllm-engine-core-stopped-while-busy"
FOR_THE_MACHINE = {(STUCK, "LLMEngineStuck")} | {
    (name, "LLMTargetDown") for name in ("vllm-engine-core-killed", "vllm-sigterm-while-busy")
}

MAY = {"LLMEngineStalled", "LLMFirstTokenBurnFast"}
"""What a long prefill may raise: nothing for the machine, nothing about its health."""

pytestmark = pytest.mark.timeout(180)


@dataclass(frozen=True)
class Played:
    """(recording, alert) -> the seconds in which it fired; recording -> the states that it went through."""

    fired: dict[tuple[str, str], list[tuple[float, float]]]
    states: dict[str, list[str]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    home = tmp_path_factory.mktemp("recorded")
    (home / "alerts.yml").write_text(yaml.safe_dump(shortened_rules(SPEED)))
    with ExitStack() as stack:
        servers = [RecordedServer(name) for name in NAMES]
        for server in servers:
            stack.callback(server.close)
        port = free_port()
        stack.enter_context(exporter(home, port, servers))
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "500ms"},
            "rule_files": [str(home / "alerts.yml")],
            "scrape_configs": [
                {"job_name": "llm-exporter", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]},
            ],
        }
        url = stack.enter_context(prometheus(home / "prom", yaml.safe_dump(config)))
        until(lambda: get(f"{url}/api/v1/query", query="llm_up == 1")["data"]["result"] or None, "targets are scraped")
        began, monotonic = time.time(), time.monotonic()
        for server in servers:
            server.play(monotonic)
        time.sleep(LENGTH)
        span = {"start": str(began), "end": str(time.time()), "step": "0.25"}
        fired = {
            (line["metric"]["target"], line["metric"]["alertname"]): spans([at - began for at, _ in line["values"]], gap=3)
            for line in get(f"{url}/api/v1/query_range", query='ALERTS{alertstate="firing",target!=""}', **span)["data"][
                "result"
            ]
        }
        lines = get(f"{url}/api/v1/query_range", query='llm_health_state{target!=""} == 1', **span)["data"]["result"]
        states: dict[str, list[str]] = {name: [] for name in NAMES}
        for _at, name, state in sorted(
            (at, line["metric"]["target"], line["metric"]["llm_health_state"]) for line in lines for at, _ in line["values"]
        ):
            if not states[name] or states[name][-1] != state:
                states[name].append(state)
        yield Played(fired, states)


def exporter(home: Path, port: int, servers: list[RecordedServer]) -> object:
    """A real exporter process with the bounds of the recordings' table."""
    config = {
        "defaults": {
            "interval": "2s",
            "timeout": "1900ms",
            "stalled_after": "4s",
            "stuck_after": "10s",
            "stuck_after_blind": "30s",
            "start_grace": "0s",
            "canary": {"confirm": False, "idle": "off"},
        },
        "targets": [{"name": s.name, "url": f"http://127.0.0.1:{s.port}"} for s in servers],
    }
    (home / "exporter.yml").write_text(yaml.safe_dump(config))
    root = RULES.parent
    path = os.pathsep.join(str(root / part) for part in ("common", "exporter"))
    argv = [sys.executable, "-m", "llm_exporter", f"--config.file={home / 'exporter.yml'}"]
    argv = ["env", f"PYTHONPATH={path}", *argv, f"--web.listen-address=127.0.0.1:{port}"]
    return running(argv, f"http://127.0.0.1:{port}/-/ready", home / "exporter.log")


def test_the_machine_hears_of_the_stopped_engine_and_of_the_dead_servers_only(played: Played) -> None:
    machine = {a for a, rule in alert_rules().items() if rule["labels"].get("remediate")}
    assert {key for key in played.fired if key[1] in machine} == FOR_THE_MACHINE, played.states


def test_the_stuck_alert_begins_and_ends_with_the_hang(played: Played) -> None:
    """Stopped at 7 s, stuck after the bound of 10 s and not before, continued at 27 s."""
    ((begins, ends),) = played.fired[STUCK, "LLMEngineStuck"]
    assert 16.5 < begins < 27, played.fired
    assert 27 < ends < 40, played.fired
    assert [s for s in played.states[STUCK] if s != "idle"] == ["busy", "stalled", "stuck", "busy"]


def test_health_said_200_all_the_while(played: Played) -> None:
    assert (STUCK, "LLMHealthEndpointLies") in played.fired


@pytest.mark.parametrize("name", ["vllm-long-prefill", "vllm-solo-long-prefill", "llamacpp-long-prefill"])
def test_no_prefill_however_long_is_called_ill(played: Played, name: str) -> None:
    assert "busy" in played.states[name]
    assert not {"stuck", "starved", "failed", "down"} & set(played.states[name])
    assert not [alert for recording, alert in played.fired if recording == name and alert not in MAY]


def test_a_server_without_its_series_is_reported_as_unknown(played: Played) -> None:
    assert ("vllm-log-stats-disabled", "LLMTargetUnknown") in played.fired


def test_every_recording_was_judged(played: Played) -> None:
    assert all(played.states.values())
    blind = {name for name, states in played.states.items() if states == ["unknown"]}
    assert blind <= {"vllm-log-stats-disabled"}
