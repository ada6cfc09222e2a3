from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_remediator.docker_facts import PS_ARGS
from llm_remediator.socket_rules import Call, judge, only_forced, without_secrets

ID = "0123456789abcdef" * 4
SERVICE = "abcdefghijklmnopqrstuvwxy"


def allowed(method: str, target: str, headers: dict[str, str] | None = None, *, swarm: bool = False) -> bool:
    return isinstance(judge(method, target, headers or {}, swarm=swarm), Call)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/_ping"),
        ("HEAD", "/_ping"),
        ("GET", "/version"),
        ("GET", "/v1.44/version"),
        ("GET", "/v1.44/containers/json?all=1&filters=%7B%7D"),
        ("GET", f"/v1.44/containers/{ID}/json"),
        ("GET", f"/v1.44/containers/{ID}/logs?stdout=1&stderr=1&timestamps=1&tail=200"),
        ("GET", f"/v1.44/containers/{ID}/top?ps_args={PS_ARGS.replace(' ', '+')}"),
        ("GET", "/v1.44/events?since=1.000000000&until=2.5&filters=%7B%7D"),
        ("POST", f"/v1.44/containers/{ID}/restart?t=60"),
        ("POST", f"/containers/{ID}/start"),
    ],
)
def test_what_the_remediator_needs(method: str, target: str) -> None:
    assert allowed(method, target)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/v1.44/containers/create"),
        ("POST", f"/v1.44/containers/{ID}/exec"),
        ("POST", f"/v1.44/containers/{ID}/kill"),
        ("POST", f"/v1.44/containers/{ID}/stop"),
        ("POST", f"/v1.44/containers/{ID}/attach"),
        ("PUT", f"/v1.44/containers/{ID}/archive"),
        ("GET", f"/v1.44/containers/{ID}/export"),
        ("GET", f"/v1.44/containers/{ID}/json/../archive"),
        ("GET", f"//v1.44/containers/{ID}/json"),
        ("GET", f"/v1.44/v1.44/containers/{ID}/json"),
        ("GET", f"/v2.44/containers/{ID}/json"),
        ("GET", f"/v1.44/containers/{ID.upper()}/json"),
        ("GET", f"/v1.44/containers/{ID[:-1]}/json"),
        ("GET", f"/v1.44/containers/{ID}/json\n"),
        ("GET", f"/v1.44/containers/{ID}/json?size=1"),
        ("GET", f"/v1.44/containers/{ID}/json#x"),
        ("GET", f"/v1.44/containers/{ID}/logs?stdout=1"),
        ("GET", f"/v1.44/containers/{ID}/logs?tail=all"),
        ("GET", f"/v1.44/containers/{ID}/logs?tail=1&follow=1"),
        ("GET", f"/v1.44/containers/{ID}/top"),
        ("GET", f"/v1.44/containers/{ID}/top?ps_args=auxeww"),
        ("GET", "/v1.44/events?since=1"),
        ("POST", f"/v1.44/containers/{ID}/restart?t=-1"),
        ("POST", f"/v1.44/containers/{ID}/restart?t=1&t=1"),
        ("POST", f"/v1.44/containers/{ID}/restart?t=1;signal=9"),
        ("POST", f"/v1.44/containers/{ID}/start?detachKeys=a"),
        ("GET", "/v1.44/info"),
        ("GET", "/v1.44/images/json"),
        ("GET", "/v1.44/secrets"),
        ("GET", f"/v1.44/services/{SERVICE}"),
        ("POST", f"/v1.44/services/{SERVICE}/update?version=1"),
        ("CONNECT", "x:1"),
        ("OPTIONS", "/_ping"),
    ],
)
def test_what_nobody_gets(method: str, target: str) -> None:
    refusal = judge(method, target, {}, swarm=False)
    assert isinstance(refusal, str)
    assert len(refusal) > 10


def test_bodies_and_browsers() -> None:
    start = f"/v1.44/containers/{ID}/start"
    assert allowed("POST", start, {"Content-Length": "0"})
    assert not allowed("POST", start, {"Content-Length": "2"})
    assert not allowed("POST", start, {"Transfer-Encoding": "chunked"})
    assert not allowed("POST", start, {"Origin": "http://127.0.0.1"})
    assert not allowed("GET", "/version", {"Sec-Fetch-Site": "cross-site"})


def test_swarm_only_when_asked_for() -> None:
    assert allowed("POST", f"/v1.44/services/{SERVICE}/update?version=17", {"Content-Length": "99"}, swarm=True)
    assert allowed("GET", "/v1.44/tasks?filters=%7B%7D", swarm=True)
    assert not allowed("POST", "/v1.44/services/create", {"Content-Length": "99"}, swarm=True)
    assert not allowed("POST", f"/v1.44/services/{SERVICE}/update?version=1&rollback=previous", swarm=True)


def test_a_forced_update_changes_nothing_else() -> None:
    spec: dict[str, Any] = {"Name": "s", "TaskTemplate": {"ContainerSpec": {"Image": "a"}, "ForceUpdate": 3}}
    task = spec["TaskTemplate"]
    assert only_forced(spec, {**spec, "TaskTemplate": {**task, "ForceUpdate": 4}})
    assert not only_forced(spec, {**spec, "TaskTemplate": {**task, "ContainerSpec": {"Image": "evil"}}})
    assert not only_forced(spec, {**spec, "Labels": {}})
    assert not only_forced(spec, {})


def test_the_rebuilt_call_has_nothing_of_the_request_but_checked_parts() -> None:
    call = judge("POST", f"/v1.44/containers/{ID}/restart?t=60", {}, swarm=False)
    assert isinstance(call, Call)
    assert call.target == f"/v1.44/containers/{ID}/restart?t=60"
    assert call.subject == ID


@given(st.sampled_from(["GET", "POST", "HEAD", "DELETE", "PUT"]), st.text(max_size=200))
def test_no_path_gets_through_that_is_not_spelled_exactly(method: str, path: str) -> None:
    found = judge(method, "/v1.44/containers/" + path, {}, swarm=True)
    if isinstance(found, Call):
        assert found.path == "/containers/json" or found.subject in path


def test_secrets_are_taken_out_of_answers() -> None:
    call = judge("GET", f"/containers/{ID}/json", {}, swarm=False)
    assert isinstance(call, Call)
    raw = {
        "Id": ID,
        "Args": ["--api-key", "secret"],
        "Path": "vllm",
        "Config": {
            "Env": ["KEY=secret"],
            "Cmd": ["--api-key=secret"],
            "Healthcheck": {"Test": ["curl secret"]},
            "Labels": {"a": "b"},
        },
        "HostConfig": {"Binds": ["/secret:/x"], "Init": True},
        "State": {"Status": "running", "Health": {"Status": "healthy", "Log": [{"Output": "secret"}]}},
        "Mounts": [{"Source": "/secret"}],
    }
    kept = without_secrets(call, raw)
    assert "secret" not in str(kept)
    assert kept["Config"]["Labels"] == {"a": "b"}
    assert kept["State"]["Health"]["Status"] == "healthy"
    assert kept["HostConfig"] == {"Init": True}
