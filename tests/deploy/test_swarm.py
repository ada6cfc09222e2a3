"""What deploy/swarm promises: one of each, one holder of the Docker socket, engines without a second owner."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from llm_common.durations import parse_duration
from llm_common.web_config import WebConfig
from llm_exporter import config as exporter_config
from llm_remediator import config as remediator_config

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "swarm"
FILES = {name: yaml.safe_load((FOLDER / name).read_text()) for name in ("stack.yaml", "monitoring.yaml", "demo/stack.yaml")}
SERVICES: dict[str, dict[str, Any]] = {
    name: service for file in FILES.values() for name, service in file["services"].items()
}
ENGINES, TRAFFIC = ("demo-a", "demo-b"), ("traffic-a", "traffic-b")
SINGLE = pytest.mark.parametrize("name", sorted(set(SERVICES) - set(TRAFFIC)))


@pytest.mark.parametrize("name", SERVICES)
def test_services_cannot_write_to_their_image_and_publish_nothing(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert not {"privileged", "cap_add", "ports"} & service.keys()


@SINGLE
def test_the_old_task_ends_before_the_new_one_starts(name: str) -> None:
    deploy = SERVICES[name]["deploy"]
    assert (deploy["replicas"], deploy["endpoint_mode"]) == (1, "dnsrr")
    ways = [deploy["update_config"]] + ([deploy["rollback_config"]] if name not in ENGINES else [])
    assert {(way["parallelism"], way["order"]) for way in ways} == {(1, "stop-first")}


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_has_one_owner_and_is_never_rolled_back(name: str) -> None:
    service = SERVICES[name]
    assert service["healthcheck"] == {"disable": True}
    assert service["deploy"]["labels"] == {"stuckproof.restart": "allowed"}
    assert service["deploy"]["update_config"]["failure_action"] == "pause"


@pytest.mark.parametrize("name", ["exporter", "docker-proxy", "remediator"])
def test_swarm_does_not_kill_us_on_a_starved_node(name: str) -> None:
    health = SERVICES[name]["healthcheck"]
    assert parse_duration(health["timeout"]) * health["retries"] >= 180
    assert "timeout=25" in health["test"][-1]


def test_only_the_proxy_has_the_docker_socket_and_only_the_remediator_reaches_it() -> None:
    assert [n for n, s in SERVICES.items() if any("docker.sock" in str(v) for v in s.get("volumes", []))] == ["docker-proxy"]
    assert {n for n, s in SERVICES.items() if "docker-api" in s["networks"]} == {"docker-proxy", "remediator"}
    assert SERVICES["docker-proxy"]["networks"] == ["docker-api"]
    assert FILES["stack.yaml"]["networks"]["docker-api"]["internal"] is True
    assert {"--swarm", "--only-label"} < set(SERVICES["docker-proxy"]["command"])
    assert [n for n, s in SERVICES.items() if str(s.get("user", "")).startswith("0")] == ["docker-proxy"]


def test_what_keeps_something_on_disk_stays_on_one_node() -> None:
    for name, service in SERVICES.items():
        if any(volume["type"] == "volume" for volume in service.get("volumes", [])) or name == "docker-proxy":
            assert "node.labels.stuckproof == home" in service["deploy"]["placement"]["constraints"], name


def test_every_rule_file_is_a_config_and_every_config_can_be_renewed() -> None:
    configs: dict[str, dict[str, str]] = {}
    for file in FILES.values():
        configs |= file.get("configs", {})
    given = {(FOLDER / c["file"]).resolve() for c in configs.values() if c["file"].startswith("../../rules/")}
    assert given == {path for path in (ROOT / "rules").rglob("*") if path.is_file()}
    assert all(c["name"].endswith("-${STUCKPROOF_REVISION:-1}") for c in configs.values())
    used = {use["source"] for service in SERVICES.values() for use in service.get("configs", [])}
    assert used == set(configs)


def test_the_images_are_those_of_compose() -> None:
    named = {s["image"] for s in yaml.safe_load((ROOT / "compose.yaml").read_text())["services"].values()}
    assert {service["image"] for service in SERVICES.values()} < named


@pytest.mark.parametrize("folder", [FOLDER, FOLDER / "demo"], ids=["shipped", "demo"])
def test_the_settings_are_valid_and_mean_each_other(folder: Path) -> None:
    watched = {t.name for t in exporter_config.load(str(folder / "exporter.yml"), ["vllm"]).targets}
    remediator = remediator_config.load(str(folder / "remediator.yml"))
    assert {t.name for t in remediator.targets} == watched
    known = {f"stuckproof_{name}" for name in ENGINES}
    services = {selector.service for target in remediator.targets for selector in target.selectors}
    assert services == (known if folder.name == "demo" else {"llm_vllm-a"})
    assert (remediator.mode.value, folder.name) in (("act", "demo"), ("observe", "swarm"))
    assert re.search(r"alertmanager:9093", (folder / "prometheus.yml").read_text())


def test_the_token_is_where_everybody_looks_for_it() -> None:
    web = yaml.safe_load((FOLDER / "remediator-web.yml").read_text())
    assert set(web) <= set(WebConfig.__dataclass_fields__)
    for name in ("remediator", "prometheus", "alertmanager"):
        (secret,) = SERVICES[name]["secrets"]
        assert secret["target"] == web["bearer_token_file"]
