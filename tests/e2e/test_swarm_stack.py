"""deploy/swarm on a real one-node swarm: a hung engine's service gets exactly one forced update, its neighbour none.

The Docker Engine is the test's own, so that the machine's never joins a swarm. Nothing is published: every question is
asked from inside a container, as in production.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

import docker
import pytest

from e2e.harness import BUSY, HUNG, ROOT, docker_answers, run, wait_for
from e2e.own_dockerd import OwnDockerd, own_dockerd

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

FOLDER = ROOT / "deploy" / "swarm"
STACK = "stuckproof"
IMAGES = ("EXPORTER_IMAGE", "REMEDIATOR_IMAGE", "DEMO_IMAGE", "PROMETHEUS_IMAGE", "ALERTMANAGER_IMAGE")
LOGS = ROOT / ".run" / "e2e-swarm"


def images() -> dict[str, str]:
    """The images' names, as scripts/images.sh chose them."""
    if all(os.environ.get(name) for name in IMAGES):
        return {name: os.environ[name] for name in IMAGES}
    lines = run(["bash", "-c", f". {shlex.quote(str(ROOT))}/scripts/lib.sh && load_images && env"], 30).splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines) if name in IMAGES}


class SwarmStack:
    """The stack, its demo engines, and a one-node swarm that holds nothing else."""

    def __init__(self, dockerd: OwnDockerd) -> None:
        self.dockerd = dockerd
        self.client: Any = docker.DockerClient(f"unix://{dockerd.socket}", timeout=60)
        self._told = dockerd.folder / "updates.jsonl"
        self._events: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        """What README.md says, in its order."""
        names = images()
        assert sorted(names) == sorted(IMAGES), f"images are missing: {sorted(set(IMAGES) - set(names))}; run `make images`"
        self._load(list(names.values()))
        self.client.swarm.init(advertise_addr="127.0.0.1", listen_addr="127.0.0.1:22379")
        (node,) = self.client.nodes.list()
        node.update({**node.attrs["Spec"], "Labels": {"stuckproof": "home"}})
        self.client.secrets.create(name="stuckproof-token", data=os.urandom(16).hex())
        settings = {"STUCKPROOF_CONFIG": "./demo", "DOCKER_SOCKET": self.dockerd.socket}
        files = [part for name in ("stack", "monitoring", "demo/stack") for part in ("-c", str(FOLDER / f"{name}.yaml"))]
        self.docker("stack", "deploy", "--resolve-image", "never", *files, STACK, **names, **settings)
        wait_for("every service runs", 90, self._all_run, every=0.5)
        # Docker remembers only its last 256 events, and every health check makes three: they are written down as they come.
        with self._told.open("wb") as told:
            command = ["docker", "--host", f"unix://{self.dockerd.socket}", "events"]
            only = ["--filter", "type=service", "--filter", "event=update", "--format", "{{json .Actor.Attributes}}"]
            self._events = subprocess.Popen([*command, *only], stdout=told)

    def close(self) -> None:
        """End what listens, and the tasks: dockerd is much slower to end with them than without."""
        if self._events is not None:
            self._events.terminate()
            self._events.wait(10)
        for service in self.client.services.list():
            service.remove()
        wait_for("the tasks have ended", 60, lambda: self.client.containers.list() == [], every=0.5)
        self.client.close()

    def _load(self, names: list[str]) -> None:
        with subprocess.Popen(["docker", "save", *names], stdout=subprocess.PIPE) as saved:
            command = ["docker", "--host", f"unix://{self.dockerd.socket}", "load", "--quiet"]
            subprocess.run(command, stdin=saved.stdout, check=True, timeout=150, stdout=subprocess.DEVNULL)
        assert saved.returncode == 0, f"docker save {shlex.join(names)} failed"

    def _all_run(self) -> bool:
        wanted = self.client.services.list()
        return len(wanted) == 9 and all(len(self.running(s.name.removeprefix(f"{STACK}_"))) == 1 for s in wanted)

    def docker(self, *arguments: str, **variables: str) -> str:
        """The docker command on this engine."""
        return run(["docker", *arguments], 90, {**os.environ, "DOCKER_HOST": f"unix://{self.dockerd.socket}", **variables})

    def service(self, name: str) -> Any:
        """A service of the stack, looked up anew."""
        return self.client.services.get(f"{STACK}_{name}")

    def tasks(self, name: str) -> list[str]:
        """Every task that the service ever had."""
        return sorted(str(t["ID"]) for t in self.service(name).tasks())

    def running(self, name: str) -> list[str]:
        """Those that run."""
        wanted = self.service(name).tasks({"desired-state": "running"})
        return sorted(str(t["ID"]) for t in wanted if t["Status"]["State"] == "running")

    def forced(self, name: str) -> int:
        """How many forced updates Swarm has noted down for the service."""
        return int(self.service(name).attrs["Spec"]["TaskTemplate"].get("ForceUpdate") or 0)

    def updates(self) -> list[str]:
        """Services updated since `up`, one for each accepted call, as the manager told it at the time."""
        told = [json.loads(line) for line in self._told.read_text().splitlines()]
        # The progress of an update is told as updates too; only the call itself has no state in it.
        return [e["name"] for e in told if not any(key.startswith("updatestate") for key in e)]

    def inside(self, name: str, *command: str) -> str:
        """Run a command in the service's container."""
        found = self.client.containers.list(filters={"label": f"com.docker.swarm.service.name={STACK}_{name}"})
        assert len(found) == 1, f"{len(found)} containers of {name} run"
        return self.docker("exec", str(found[0].id), *command)

    def get(self, url: str) -> str:
        """An HTTP page, read by the remediator's container with its token."""
        code = (
            "import sys,urllib.request as u\n"
            "t=open('/run/stuckproof/token').read()\n"
            "r=u.Request(sys.argv[1],headers={'Authorization':'Bearer '+t} if ':10141/' in sys.argv[1] else {})\n"
            "print(u.urlopen(r,timeout=60).read().decode())"
        )
        return self.inside("remediator", "python3", "-c", code, url)

    def state(self, name: str) -> str:
        """The exporter's word."""
        return str(json.loads(self.get(f"http://exporter:10140/api/v1/targets/{name}"))["state"])

    def decisions(self, target: str) -> list[dict[str, Any]]:
        """What the remediator decided about a target, newest first."""
        found = json.loads(self.get(f"http://127.0.0.1:10141/api/v1/decisions?limit=1000&target={target}"))["decisions"]
        return list(found)

    def outcomes(self, target: str) -> list[str]:
        """What became of each restart."""
        return [d["outcome"] for d in self.decisions(target) if d["decision"] == "act"]

    def left_alone(self, target: str) -> bool:
        """Whether it was decided on five times in a row since, and refused because it works or no alert asks any more."""
        newest = self.decisions(target)[0]
        return newest["reason"] in ("state_busy", "alert_resolved", "no_alert") and newest["evidence"]["count"] >= 5

    def keep_logs(self) -> None:
        """What was said, for whoever reads a failure."""
        LOGS.mkdir(parents=True, exist_ok=True)
        (LOGS / "tasks.txt").write_text(self.docker("stack", "ps", "--no-trunc", STACK))
        for service in self.client.services.list():
            lines = service.logs(stdout=True, stderr=True, timestamps=True)
            (LOGS / f"{service.name}.log").write_bytes(b"".join(lines))


@pytest.fixture
def swarm() -> Iterator[SwarmStack]:
    if not docker_answers():
        pytest.skip("no Docker Engine answers that has the images; `make test-e2e` starts one")
    with own_dockerd() as dockerd:
        made = SwarmStack(dockerd)
        try:
            made.up()
            yield made
        finally:
            made.keep_logs()
            made.close()


def test_a_hung_service_is_updated_by_force_once(swarm: SwarmStack) -> None:
    wait_for("both engines are busy", 60, lambda: all(swarm.state(name) == "busy" for name in (HUNG, BUSY)), every=1)
    assert swarm.outcomes(HUNG) == []
    hung, busy = swarm.running(HUNG), swarm.running(BUSY)
    before = swarm.service(HUNG).attrs["Spec"]
    swarm.inside(HUNG, "python", "-m", "llm_sim.fault", "hang")

    wait_for("the restart is verified", 120, lambda: swarm.outcomes(HUNG) == ["recovered"], every=1)
    # The alert looks back a minute and still asks for a restart.
    wait_for("it is left alone from then on", 60, lambda: swarm.left_alone(HUNG), every=1)

    assert swarm.outcomes(HUNG) == ["recovered"]
    assert swarm.state(HUNG) == "busy"
    assert swarm.forced(HUNG) == 1
    assert swarm.updates() == [f"{STACK}_{HUNG}"]
    assert len(swarm.tasks(HUNG)) == 2
    assert not set(hung) & set(swarm.running(HUNG))
    after = swarm.service(HUNG).attrs["Spec"]
    assert after["TaskTemplate"].pop("ForceUpdate") == 1
    before["TaskTemplate"].pop("ForceUpdate", None)
    assert after == before, "nothing but the counter"
    assert swarm.outcomes(BUSY) == []
    assert (swarm.forced(BUSY), swarm.running(BUSY), swarm.tasks(BUSY)) == (0, busy, busy)
