"""The daemon stopped, started again and hung under us; Swarm services. On a Docker Engine of our own."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from e2e.own_dockerd import OwnDockerd, own_dockerd
from e2e.test_docker_runtime import off_loop, proxied
from e2e.tiny_docker import IMAGE, Hands, until
from llm_remediator.config import DockerHost
from llm_remediator.containers import Selector
from llm_remediator.docker_api import DockerApi
from llm_remediator.outcome import Status
from llm_remediator.runtime_docker import DockerRuntime
from llm_remediator.runtime_swarm import SwarmRuntime

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def dockerd() -> Iterator[OwnDockerd]:
    with own_dockerd() as mine:
        yield mine


@pytest.fixture
def hands(dockerd: OwnDockerd) -> Iterator[Hands]:
    client = dockerd.client()
    mine = Hands(client)
    yield mine
    mine.clean()
    client.close()


def runtime(dockerd: OwnDockerd) -> DockerRuntime:
    return DockerRuntime(DockerHost("own", f"unix://{dockerd.socket}"))


async def test_the_daemon_stopped_and_started_in_between(dockerd: OwnDockerd, hands: Hands) -> None:
    container = hands.run(restart_policy={"Name": "always"})
    rt = runtime(dockerd)
    before = (await rt.inspect(container.id)).get()
    await off_loop(dockerd.stop)
    lost = await rt.restart(container.id, stop_timeout=1)
    assert lost.status is Status.UNAVAILABLE, "nobody was reached, so nothing happened"
    assert (await rt.ping()).status is Status.UNAVAILABLE
    assert rt.health.up is False
    await off_loop(dockerd.start)
    assert (await rt.ping()).ok
    assert rt.health.up is True
    await off_loop(until, "the policy started it", lambda: hands.state(container)["Running"])
    after = (await rt.inspect(container.id)).get()
    assert after.incarnation != before.incarnation, "a daemon's restart is a start that we must see"
    assert (await rt.restart(container.id, stop_timeout=1)).ok
    await rt.close()


async def test_a_hung_daemon_is_ambiguous_and_the_restart_happens_once(dockerd: OwnDockerd, hands: Hands) -> None:
    container = hands.run()
    before = hands.state(container)["StartedAt"]
    began = time.time()
    api = DockerApi(DockerHost("own", f"unix://{dockerd.socket}"))
    rt = DockerRuntime(api)
    assert (await rt.ping()).ok
    dockerd.send(signal.SIGSTOP)
    try:
        outcome = await api.post(f"/containers/{container.id}/restart", {"t": "1"}, read_timeout=1.0)
        assert outcome.status is Status.TIMED_OUT
        assert api.health.up is False
        looked = await api.get(f"/containers/{container.id}/json", read_timeout=0.5)
        assert looked.status is Status.TIMED_OUT
    finally:
        dockerd.send(signal.SIGCONT)
    await off_loop(until, "the daemon did what it had been told", lambda: hands.state(container)["StartedAt"] != before)
    await asyncio.sleep(1)
    events = (await rt.events(container.id, since=began, until=time.time())).get()
    assert [e.action for e in events].count("start") == 1
    assert (await rt.ping()).ok
    assert rt.health.up is True
    await rt.close()


# --- Swarm


@pytest.fixture(scope="module")
def swarm(dockerd: OwnDockerd) -> Iterator[Any]:
    client = dockerd.client()
    client.swarm.init(advertise_addr="127.0.0.1", listen_addr="127.0.0.1:22377")
    yield client
    client.swarm.leave(force=True)
    client.close()


SCRIPT = 'trap "exit 0" TERM; while :; do sleep 0.2; done'


def service_of(client: Any, name: str, replicas: int = 1, **options: Any) -> Any:
    made = client.services.create(
        IMAGE,
        ["sh", "-c", SCRIPT],
        name=name,
        networks=["host"],
        mode={"Replicated": {"Replicas": replicas}},
        stop_grace_period=3_000_000_000,
        **options,
    )

    def running() -> bool:
        made.reload()
        return sum(t["Status"]["State"] == "running" for t in made.tasks({"desired-state": "running"})) == replicas

    until("its tasks run", running, within=60)
    return made


async def test_a_service_is_force_updated_once_and_nothing_else_changes(dockerd: OwnDockerd, swarm: Any) -> None:
    service = await off_loop(service_of, swarm, "spb-llm", labels={"team": "x"})
    await off_loop(service_of, swarm, "spb-llm-2")
    rt = SwarmRuntime(DockerApi(DockerHost("own", f"unix://{dockerd.socket}")), asyncio.sleep)
    (match,) = (await rt.find(Selector(service="spb-llm"))).get()
    assert match.id == service.id
    assert (await rt.find(Selector(service="spb-ll"))).get() == ()
    before = (await rt.inspect(match.id)).get()
    assert (before.state, before.running, before.stop_timeout, before.labels) == ("running", True, 3, {"team": "x"})
    service.reload()
    spec = service.attrs["Spec"]
    outcome = await rt.restart(match.id, stop_timeout=3)
    assert outcome.ok, outcome.detail
    assert (await rt.restart(match.id, stop_timeout=3)).status is Status.UNAVAILABLE, "a new look is needed"
    after = (await rt.inspect(match.id)).get()
    assert after.started_at is not None
    assert before.started_at is not None
    assert after.started_at > before.started_at
    assert after.incarnation != before.incarnation
    service.reload()
    new = service.attrs["Spec"]
    assert new["TaskTemplate"].pop("ForceUpdate") == 1
    assert spec["TaskTemplate"].pop("ForceUpdate", 0) == 0
    assert new == spec
    await rt.close()


async def test_several_tasks_at_once_are_refused_one_at_a_time_is_fine(dockerd: OwnDockerd, swarm: Any) -> None:
    many = docker.types.UpdateConfig(parallelism=2)
    await off_loop(service_of, swarm, "spb-many", 2, update_config=many)
    rt = SwarmRuntime(DockerApi(DockerHost("own", f"unix://{dockerd.socket}")), asyncio.sleep)
    (match,) = (await rt.find(Selector(service="spb-many"))).get()
    before = (await rt.inspect(match.id)).get()
    outcome = await rt.restart(match.id, stop_timeout=3)
    assert outcome.status is Status.REFUSED
    assert "parallelism: 1" in outcome.detail
    assert (await rt.inspect(match.id)).get().incarnation == before.incarnation
    await rt.close()


async def test_a_service_scaled_to_nothing_by_a_person_stays_so(dockerd: OwnDockerd, swarm: Any) -> None:
    service = await off_loop(service_of, swarm, "spb-scaled")
    rt = SwarmRuntime(DockerApi(DockerHost("own", f"unix://{dockerd.socket}")), asyncio.sleep)
    await off_loop(service.scale, 0)
    seen = (await rt.inspect(service.id)).get()
    for _ in range(100):
        if not seen.running and not seen.restarting:
            break
        await asyncio.sleep(0.2)
        seen = (await rt.inspect(service.id)).get()
    assert (seen.state, seen.running) == ("exited", False)
    assert (await rt.restart(service.id, stop_timeout=3)).status is Status.UNAVAILABLE
    await rt.close()


async def test_swarm_through_the_proxy(dockerd: OwnDockerd, swarm: Any, tmp_path: Path) -> None:
    service = await off_loop(service_of, swarm, "spb-proxied", labels={"stuckproof.restart": "yes"})
    async with proxied(tmp_path, docker_socket=dockerd.socket, swarm=True, only_label="stuckproof.restart") as path:
        rt = SwarmRuntime(DockerApi(DockerHost("own", f"unix://{path}")), asyncio.sleep)
        before = (await rt.inspect(service.id)).get()
        assert (await rt.logs(service.id, lines=10, max_bytes=1000)).ok
        outcome = await rt.restart(service.id, stop_timeout=3)
        assert outcome.ok, outcome.detail
        assert (await rt.inspect(service.id)).get().incarnation != before.incarnation
        await rt.close()
        api = DockerApi(DockerHost("own", f"unix://{path}"))
        raw = (await api.get(f"/services/{service.id}")).get().json()
        spec = raw["Spec"]
        spec["TaskTemplate"]["ContainerSpec"]["Image"] = "evil"
        changed = await api.post(
            f"/services/{service.id}/update", {"version": str(raw["Version"]["Index"])}, body=spec, read_timeout=10
        )
        assert changed.status is Status.REFUSED
        assert "nothing in its specification changed" in changed.detail
        api.close()
