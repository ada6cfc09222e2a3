"""Every remediator.yml that the how-tos show is one that the program takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from llm_common.config import parse_yaml
from llm_remediator import config as configuration
from llm_remediator.rules import Backend

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"


def blocks(name: str) -> list[dict[str, Any]]:
    """The YAML blocks of a how-to that are a remediator.yml or a part of one."""
    found = []
    for text in re.findall(r"```yaml\n(.*?)```", (HOW_TO / name).read_text(), re.DOTALL):
        document = parse_yaml(text, name)
        if isinstance(document, dict) and set(document) <= {
            f.name for f in configuration.Config.__dataclass_fields__.values()
        } | {
            "docker",
            "defaults",
        }:
            found.append(document)
    return found


def whole(part: dict[str, Any], tmp_path: Path) -> configuration.Config:
    """The part in a minimal file, its certificates replaced by files that are there."""
    (tmp_path / "f.pem").write_text("x")
    for host in (part.get("docker") or {}).get("hosts", {}).values():
        if isinstance(host, dict):
            host.update({key: str(tmp_path / "f.pem") for key in host if key.endswith("_file")})
    minimal: dict[str, Any] = {
        "exporter": "http://127.0.0.1:10140",
        "journal": "/tmp/j.sqlite",
        "targets": [{"name": "a", "docker": {"container": "a"}}],
    }
    return configuration.parse(minimal | part)


@pytest.mark.parametrize(
    ("name", "count"), [("docker-access.md", 1), ("several-hosts.md", 1), ("no-alertmanager.md", 2), ("swarm.md", 1)]
)
def test_they_are_taken(name: str, count: int, tmp_path: Path) -> None:
    parts = blocks(name)
    assert len(parts) == count
    for part in parts:
        assert whole(part, tmp_path).targets


def test_they_mean_what_they_say(tmp_path: Path) -> None:
    (hosts,) = blocks("several-hosts.md")
    assert [t.host for t in whole(hosts, tmp_path).targets] == ["gpu-1", "gpu-2"]
    alone, service = (whole(part, tmp_path) for part in blocks("no-alertmanager.md"))
    assert (alone.trigger, alone.mode.value, len(alone.notify)) == ("exporter", "observe", 1)
    assert service.targets[0].backend is Backend.COMMAND
    assert service.commands[0].timeout == 180
    (swarm,) = blocks("swarm.md")
    assert whole(swarm, tmp_path).targets[0].backend is Backend.SWARM
