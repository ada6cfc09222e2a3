"""What compose.yaml promises: hardened services, one holder of the Docker socket, loopback ports, pinned images."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
EVERY = pytest.mark.parametrize("name", SERVICES)


def image(name: str) -> str:
    """The default image of a service, as `${NAME:-default}` gives it."""
    match = re.fullmatch(r"\$\{[A-Z]+_IMAGE:-(.+)\}", SERVICES[name]["image"])
    assert match, f"{name}: the image must be replaceable by an environment variable"
    return match[1]


def mounts(name: str) -> list[str]:
    return list(SERVICES[name].get("volumes", []))


@EVERY
def test_services_cannot_write_to_their_image_or_gain_rights(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "pid", "ipc"} & service.keys()


@EVERY
def test_ports_are_published_on_loopback_only(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert port.startswith("127.0.0.1:"), port


@EVERY
def test_images_are_pinned_by_tag(name: str) -> None:
    assert re.search(r":[^/:]+$", image(name)), image(name)
    assert not image(name).endswith(":latest")


@EVERY
def test_whoever_runs_on_has_a_health_check(name: str) -> None:
    if SERVICES[name]["restart"] != "no" and not name.startswith("traffic-"):
        assert SERVICES[name]["healthcheck"]["test"]


def test_only_the_proxy_has_the_docker_socket_and_only_the_remediator_reaches_it() -> None:
    assert [name for name in SERVICES if any("docker.sock" in mount for mount in mounts(name))] == ["docker-proxy"]
    reach = {name for name in SERVICES if "docker-api" in SERVICES[name].get("networks", [])}
    assert reach == {"docker-proxy", "remediator"}
    assert SERVICES["docker-proxy"]["networks"] == ["docker-api"]
    assert COMPOSE["networks"]["docker-api"]["internal"] is True
    assert "ports" not in SERVICES["docker-proxy"]


def test_only_the_proxy_and_the_token_maker_run_as_root() -> None:
    assert {name for name in SERVICES if str(SERVICES[name].get("user", "")).startswith("0")} == {"docker-proxy", "token"}
    for name in ("exporter", "remediator", "demo"):
        dockerfile = (ROOT / name / "Dockerfile").read_text()
        users = re.findall(r"^USER (\d+):\d+$", dockerfile, re.MULTILINE)
        assert users, name
        assert int(users[-1]) > 1000, name


def test_the_scripts_pull_the_images_that_compose_names() -> None:
    script = (ROOT / "scripts" / "images.sh").read_text()
    for name in ("prometheus", "alertmanager", "grafana"):
        assert f"{name.upper()}_ORIGINAL={image(name)}\n" in script
    base = re.search(r"^BASE_ORIGINAL=(\S+)$", script, re.MULTILINE)
    assert base
    for name in ("exporter", "remediator", "demo"):
        assert f"ARG BASE_IMAGE={base[1]}\n" in (ROOT / name / "Dockerfile").read_text()
    assert set(re.findall(r"\$\{BASE_IMAGE:-(.+?)\}", (ROOT / "compose.yaml").read_text())) == {base[1]}


def test_demo_and_grafana_do_not_start_unasked() -> None:
    unasked = {name for name in SERVICES if "profiles" not in SERVICES[name]}
    assert unasked == {"exporter", "token", "docker-proxy", "remediator", "prometheus", "alertmanager"}
