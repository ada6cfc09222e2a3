"""The patterns that the documentation gives for another proxy let through what we call, and nothing that makes root."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llm_remediator.docker_facts import PS_ARGS
from llm_remediator.socket_rules import Call, judge

DOC = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "docker-access.md"
ID = "0123456789abcdef" * 4
OURS = [
    ("GET", "/version", ""),
    ("GET", "/v1.41/containers/json", "all=1&filters=%7B%7D"),
    ("GET", f"/v1.44/containers/{ID}/json", ""),
    ("GET", f"/v1.44/containers/{ID}/logs", "stdout=1&stderr=1&timestamps=1&tail=200"),
    ("GET", f"/v1.44/containers/{ID}/top", f"ps_args={PS_ARGS.replace(' ', '+')}"),
    ("GET", "/v1.44/events", "since=1.0&until=2.0&filters=%7B%7D"),
    ("POST", f"/v1.44/containers/{ID}/restart", "t=60"),
    ("POST", f"/v1.44/containers/{ID}/start", ""),
]


def patterns() -> dict[str, str]:
    found = dict(re.findall(r"'-allow(GET|POST)=([^']+)'", DOC.read_text()))
    assert set(found) == {"GET", "POST"}
    return found


@pytest.mark.parametrize(("method", "path", "query"), OURS)
def test_all_our_calls_pass_both_proxies(method: str, path: str, query: str) -> None:
    # wollomatic/socket-proxy puts ^ and $ around the text as it is.
    assert re.search(f"^{patterns()[method]}$", path)
    target = f"{path}?{query}" if query else path
    assert isinstance(judge(method, target, {}, swarm=False), Call)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1.44/containers/create"),
        ("POST", f"/v1.44/containers/{ID}/exec"),
        ("POST", f"/v1.44/containers/{ID}/kill"),
        ("POST", f"/v1.44/containers/{ID[:12]}/restart"),
        ("POST", "/v1.44/containers/vllm/restart"),
        ("POST", "/v1.44/images/create"),
        ("GET", f"/v1.44/containers/{ID}/archive"),
        ("GET", f"/v1.44/containers/{ID}/json/x"),
        ("GET", "/x/version"),
        ("GET", "/v1.44/images/json"),
    ],
)
def test_what_makes_root_passes_neither(method: str, path: str) -> None:
    assert not re.search(f"^{patterns()[method]}$", path)
    assert isinstance(judge(method, path, {}, swarm=False), str)
