"""A Swarm service and a fixed command restarted by the whole remediator: decided, done once, verified."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import docker
import pytest

from e2e.own_dockerd import OwnDockerd, own_dockerd
from e2e.remedy_stage import Stage
from e2e.test_own_dockerd import service_of
from e2e.tiny_docker import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


class Patient:
    """What `Stage` needs of a container, for something else that starts and runs. `look`: (StartedAt, running)."""

    def __init__(self, name: str, look: Callable[[], tuple[str, bool]]) -> None:
        self.name = self.id = name
        self._look = look
        self.attrs: dict[str, Any] = {}

    def reload(self) -> None:
        """Look again."""
        started, running = self._look()
        self.attrs = {"State": {"StartedAt": started, "Running": running}}


def stage(folder: Path, patient: Patient, **settings: Any) -> Stage:
    made = Stage(folder, docker.DockerClient("unix:///none", version="1.41"), patient, **settings)  # type: ignore[arg-type]
    made.start()
    return made


@pytest.fixture
def swarm() -> Iterator[OwnDockerd]:
    with own_dockerd() as mine:
        yield mine


def test_a_swarm_service(swarm: OwnDockerd, tmp_path: Path) -> None:
    client = swarm.client()
    client.swarm.init(advertise_addr="127.0.0.1", listen_addr="127.0.0.1:22378")
    service = service_of(client, "spb-llm")
    before = [t["ID"] for t in service.tasks({"desired-state": "running"})]

    def look() -> tuple[str, bool]:
        running = [t for t in service.tasks({"desired-state": "running"}) if t["Status"]["State"] == "running"]
        stamps = [t["Status"]["Timestamp"] for t in service.tasks() if t["Status"]["State"] == "running"]
        return max(stamps, default="1970-01-01T00:00:00Z"), bool(running)

    found = stage(
        tmp_path,
        Patient("spb-llm", look),
        docker={"hosts": {"own": f"unix://{swarm.socket}"}},
        targets=[{"name": "engine", "swarm": {"host": "own", "service": "spb-llm"}}],
    )
    try:
        (attempt,) = found.wait_closed(1)
        assert attempt["result"] in ("verified", "recovered", "recovered_unverified"), attempt
        service.reload()
        assert service.attrs["Spec"]["TaskTemplate"]["ForceUpdate"] == 1, "once"
        after = [t["ID"] for t in service.tasks({"desired-state": "running"})]
        assert not set(before) & set(after)
        found.wait_decision("state_busy")
        assert len(found.attempts()) == 1
    finally:
        found.close()
        client.close()


SYSTEMCTL = """#!/bin/sh
# One unit, its state in a folder; times as systemd prints them with TZ=UTC.
D=$(dirname "$0")
now() { date -u '+%a %Y-%m-%d %H:%M:%S UTC'; }
case "$1" in
restart) now > "$D/started"; echo "$$" > "$D/invocation"; echo x >> "$D/restarts" ;;
show)
  echo Id=vllm.service; echo LoadState=loaded; echo "ActiveState=$(cat "$D/active")"; echo MainPID=1
  echo "InvocationID=$(cat "$D/invocation")"; echo "ExecMainStartTimestamp=$(cat "$D/started")"
  echo ExecMainExitTimestamp= ;;
esac
"""


@pytest.mark.parametrize("active", ["active", "inactive"])
def test_a_systemd_unit(tmp_path: Path, active: str) -> None:
    """A running one is restarted once; one that a person stopped is left alone."""
    (tmp_path / "systemctl").write_text(SYSTEMCTL)
    (tmp_path / "systemctl").chmod(0o755)
    begun = datetime.now(UTC).replace(microsecond=0)
    (tmp_path / "started").write_text(f"{begun:%a %Y-%m-%d %H:%M:%S} UTC")
    (tmp_path / "invocation").write_text("first")
    (tmp_path / "active").write_text(active)

    def look() -> tuple[str, bool]:
        when = datetime.strptime((tmp_path / "started").read_text().strip(), "%a %Y-%m-%d %H:%M:%S UTC")
        return f"{when.isoformat()}Z", True

    found = stage(
        tmp_path,
        Patient("vllm", look),
        commands={"heal": {"argv": [str(tmp_path / "systemctl"), "restart", "vllm"], "timeout": "10s"}},
        targets=[{"name": "engine", "command": "heal"}],
    )
    try:
        if active == "inactive":
            found.wait_decision("container_exited")
            assert not (tmp_path / "restarts").exists()
            assert found.attempts() == []
            return
        (attempt,) = found.wait_closed(1)
        assert attempt["result"] in ("verified", "recovered", "recovered_unverified"), attempt
        assert (tmp_path / "restarts").read_text() == "x\n"
        until("it is seen busy", lambda: found.get("/api/v1/targets")["targets"][0]["state"] == "busy")
    finally:
        found.close()
