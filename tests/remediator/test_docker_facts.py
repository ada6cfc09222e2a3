from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_remediator.containers import Match, Selector, the_one
from llm_remediator.docker_facts import (
    api_version,
    list_filters,
    looks_like_watchdog,
    read_container,
    read_event,
    read_matches,
    read_processes,
    unix_time,
    version_warnings,
)
from llm_remediator.docker_log import plain_log

ID = "ab" * 32


def inspected(**state: Any) -> dict[str, Any]:
    return {
        "Id": ID,
        "Name": "/p-vllm-1",
        "RestartCount": 5,
        "State": {
            "Status": "running",
            "Running": True,
            "Paused": False,
            "Restarting": False,
            "Pid": 123,
            "ExitCode": 0,
            "Error": "",
            "OOMKilled": False,
            "StartedAt": "2026-11-30T03:59:11.123456789Z",
            "FinishedAt": "0001-01-01T00:00:00Z",
            **state,
        },
        "Config": {
            "Image": "vllm",
            "Hostname": "abc",
            "Labels": {"a": "b"},
            "StopTimeout": 90,
            "ExposedPorts": {"8000/tcp": {}},
        },
        "HostConfig": {"RestartPolicy": {"Name": "unless-stopped"}, "Init": None, "NetworkMode": "p_default"},
        "NetworkSettings": {
            "Networks": {"p_default": {"IPAddress": "172.18.0.2", "Aliases": ["vllm"], "DNSNames": ["vllm", "p-vllm-1"]}},
            "Ports": {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "18000"}], "9/udp": None},
        },
    }


def test_inspect_is_read() -> None:
    box = read_container(inspected())
    assert (box.name, box.state, box.pid, box.restart_count, box.stop_timeout) == ("p-vllm-1", "running", 123, 5, 90)
    assert box.started_at == pytest.approx(1_796_011_151.123457)
    assert box.finished_at is None
    assert box.init is False
    assert box.addresses == ("172.18.0.2", "abc", "p-vllm-1", "vllm")
    assert box.ports == (8000,)
    assert box.published == (("127.0.0.1", 18000),)
    assert box.incarnation == f"{ID}@2026-11-30T03:59:11.123456789Z"


def test_incarnations_differ_in_nanoseconds() -> None:
    later = read_container(inspected(StartedAt="2026-11-30T03:59:11.123456790Z"))
    assert later.incarnation != read_container(inspected()).incarnation


@pytest.mark.parametrize(
    "raw", [{}, {"Id": ID}, {"Id": ID, "State": {}}, {"Id": "abc", "State": {"Running": True}}, {"State": {"Running": True}}]
)
def test_half_an_answer_is_no_container(raw: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="State"):
        read_container(raw)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01Z", 1.0),
        ("1970-01-01T01:00:01.5+01:00", 1.5),
        ("0001-01-01T00:00:00Z", None),
        ("", None),
        (None, None),
        ("yesterday", None),
        ("2026-13-01T00:00:00Z", "error"),
    ],
)
def test_times(text: str | None, expected: float | str | None) -> None:
    if expected == "error":
        with pytest.raises(ValueError):
            unix_time(text)
    else:
        assert unix_time(text) == expected


@pytest.mark.parametrize(
    ("server", "least", "speaks"),
    [("1.41", "1.12", "1.41"), ("1.56", "1.40", "1.44"), ("1.99", "1.60", "1.60"), ("1.9", "1.1", "1.9")],
)
def test_the_api_version_is_agreed_on(server: str, least: str, speaks: str) -> None:
    assert api_version({"ApiVersion": server, "MinAPIVersion": least}, "1.44") == speaks


def test_engines_that_lose_containers_are_warned_about() -> None:
    assert version_warnings("24.0.6")
    assert version_warnings("24.0.0-rc1")
    for fine in ("20.10.24+dfsg1", "24.0.7", "29.1.0", "dev", ""):
        assert not version_warnings(fine), fine


def test_owners_and_watchdogs() -> None:
    def labelled(**labels: str) -> Any:
        raw = inspected()
        raw["Config"]["Labels"] = {k.replace("__", "."): v for k, v in labels.items()}
        return read_container(raw)

    assert labelled(io__kubernetes__pod__uid="x").owner == "kubernetes"
    assert labelled(com__docker__swarm__task__id="x").owner == "swarm"
    assert labelled(PODMAN_SYSTEMD_UNIT="x.service").owner == "podman-systemd"
    assert labelled().owner is None
    assert labelled(autoheal="true").watchdog_labels == ("autoheal=true",)
    assert labelled(autoheal="False").watchdog_labels == ()
    raw = inspected()
    raw["Config"]["HealthcheckOnFailureAction"] = "restart"
    assert read_container(raw).watchdog_labels == ("health-on-failure=restart",)
    assert looks_like_watchdog("willfarrell/autoheal:1.2.0")
    assert not looks_like_watchdog("vllm/vllm-openai:v0.11.0")


def entry(name: str, **labels: str) -> dict[str, Any]:
    full = {f"com.docker.compose.{k}": v for k, v in labels.items()}
    return {"Id": name.encode().hex().ljust(64, "0"), "Names": [f"/{name}"], "State": "running", "Labels": full}


def test_filters_are_checked_again_for_a_proxy_may_drop_them() -> None:
    """As with `{"label": []}`: Docker answers with every container there is."""
    everything = [entry("other", project="x", service="y"), entry("p-vllm-1", project="p", service="vllm"), entry("bare")]
    matches = read_matches(everything, Selector(compose_project="p", compose_service="vllm"))
    assert [m.name for m in matches] == ["p-vllm-1"]
    assert [m.name for m in read_matches(everything, Selector(container="bare"))] == ["bare"]
    assert read_matches(everything, Selector(container="bar")) == ()
    assert read_matches(everything, Selector()) == ()


def test_a_scaled_services_number() -> None:
    listed = [entry(f"p-vllm-{n}", project="p", service="vllm", **{"container-number": str(n)}) for n in (1, 2)]
    assert len(read_matches(listed, Selector(compose_project="p", compose_service="vllm"))) == 2
    one = read_matches(listed, Selector(compose_project="p", compose_service="vllm", compose_number=2))
    assert [m.name for m in one] == ["p-vllm-2"]


def test_a_dot_in_a_name_is_a_dot() -> None:
    assert list_filters(Selector(container="a.b"))["name"] == [r"^/?a\.b$"]
    for bad in ("a/b", "../x", "a b", "-a", "a\n"):
        with pytest.raises(ValueError):
            list_filters(Selector(container=bad))


def test_exactly_one() -> None:
    one, two = Match("1", "a", "running"), Match("2", "0123456789ab_a", "created", renamed=True)
    selector = Selector(container="a")
    assert the_one([one], selector) == (one, "")
    assert the_one([], selector) == (None, "no container matches container a")
    assert "being recreated" in the_one([one, two], selector)[1]
    assert "2 containers match" in the_one([one, Match("3", "b", "running")], selector)[1]


def test_top_is_read_and_half_lines_left_out() -> None:
    raw = {
        "Titles": ["PID", "PPID", "STAT", "ELAPSED", "WCHAN", "COMMAND"],
        "Processes": [
            ["12", "1", "Dl", "300", "uvm_spin_loop", "python"],
            ["x"],
            [],
            ["13", "12", "Z", "", "-", "pt_main <defunct>"],
        ],
    }
    first, second = read_processes(raw)
    assert (first.pid, first.stat, first.wchan, first.elapsed) == (12, "Dl", "uvm_spin_loop", 300.0)
    assert (second.stat, second.elapsed) == ("Z", None)
    assert read_processes({}) == ()


def test_events_of_old_and_new_daemons() -> None:
    new = {"Action": "kill", "timeNano": 1500000000, "Actor": {"ID": ID, "Attributes": {"signal": "15"}}}
    assert (read_event(new).at, read_event(new).action, read_event(new).signal) == (1.5, "kill", "15")
    old = {"status": "die", "time": 2, "Actor": {"Attributes": {"exitCode": "137"}}}
    assert (read_event(old).at, read_event(old).action, read_event(old).exit_code) == (2.0, "die", 137)


def frame(stream: int, text: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(text).to_bytes(4, "big") + text


def test_log_frames_are_taken_off_and_plain_text_stays() -> None:
    assert plain_log(frame(1, b"out\n") + frame(2, b"err\n")) == "out\nerr\n"
    assert plain_log(b"plain terminal\n") == "plain terminal\n"
    whole = frame(1, b"first line\n") + frame(2, b"second\n") + frame(1, b"third\n")
    for cut in range(len(whole)):
        assert plain_log(whole[cut:]).endswith("third\n" if cut <= len(whole) - 6 else whole[cut:].decode()), cut


@given(st.binary(max_size=200))
def test_no_log_bytes_crash_it(raw: bytes) -> None:
    assert isinstance(plain_log(raw), str)
