"""The Docker runtime and the socket proxy against a real Docker Engine: every state a container can be in."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from e2e.tiny_docker import SOCKET, Hands, until
from llm_remediator.config import DockerHost
from llm_remediator.containers import Selector, the_one
from llm_remediator.docker_api import DockerApi
from llm_remediator.outcome import Status
from llm_remediator.runtime_docker import DockerRuntime
from llm_remediator.socket_proxy import SocketProxy

pytestmark = pytest.mark.e2e


@pytest.fixture
async def runtime() -> AsyncIterator[DockerRuntime]:
    rt = DockerRuntime(DockerHost("local", f"unix://{SOCKET}"))
    yield rt
    await rt.close()


async def off_loop(call: Any, *args: Any, **options: Any) -> Any:
    return await asyncio.to_thread(lambda: call(*args, **options))


# --- finding


async def test_ping_negotiates_and_knows_the_clock(runtime: DockerRuntime) -> None:
    info = (await runtime.ping()).get()
    assert info.version
    assert info.api_version.startswith("1.")
    assert info.clock_skew == 0.0
    assert runtime.health.up


async def test_compose_labels_find_the_service_and_never_a_oneoff(hands: Hands, runtime: DockerRuntime) -> None:
    project = hands.name("proj")
    labels = {"com.docker.compose.project": project, "com.docker.compose.service": "vllm"}
    real = hands.run(labels={**labels, "com.docker.compose.oneoff": "False"})
    hands.run(labels={**labels, "com.docker.compose.oneoff": "True"})
    hands.run(labels={**labels, "com.docker.compose.service": "other"})
    matches = (await runtime.find(Selector(compose_project=project, compose_service="vllm"))).get()
    assert [m.id for m in matches] == [real.id]


async def test_recreate_in_progress_is_two_matches_and_none_is_picked(hands: Hands, runtime: DockerRuntime) -> None:
    project = hands.name("proj")
    labels = {"com.docker.compose.project": project, "com.docker.compose.service": "vllm"}
    old = hands.run(labels=labels, name=f"{project}-vllm-1")
    new = hands.run(
        labels={**labels, "com.docker.compose.replace": f"{project}-vllm-1"},
        name=f"{old.id[:12]}_{project}-vllm-1",
        start=False,
    )
    selector = Selector(compose_project=project, compose_service="vllm")
    matches = (await runtime.find(selector)).get()
    assert {m.id for m in matches} == {old.id, new.id}
    one, why = the_one(matches, selector)
    assert one is None
    assert "being recreated" in why


async def test_a_name_that_looks_like_an_id_prefix_hits_only_its_own_container(hands: Hands, runtime: DockerRuntime) -> None:
    victim = hands.run()
    prefix = victim.id[:6]
    assert (await runtime.find(Selector(container=prefix))).get() == ()
    named = hands.run(name=victim.id[:8])
    matches = (await runtime.find(Selector(container=victim.id[:8]))).get()
    assert [m.id for m in matches] == [named.id]
    for short in (prefix, victim.id[:12], victim.name):
        assert (await runtime.inspect(short)).status is Status.REFUSED
        assert (await runtime.restart(short, stop_timeout=1)).status is Status.REFUSED


async def test_a_container_name_is_exact_not_a_substring(hands: Hands, runtime: DockerRuntime) -> None:
    one = hands.run()
    hands.run(name=f"{one.name}-2")
    assert [m.id for m in (await runtime.find(Selector(container=one.name))).get()] == [one.id]


@pytest.mark.parametrize(
    "selector",
    [Selector(), Selector(label=""), Selector(label="="), Selector(compose_project="p"), Selector(container="")],
)
async def test_an_empty_selector_selects_nothing(hands: Hands, runtime: DockerRuntime, selector: Selector) -> None:
    hands.run()
    outcome = await runtime.find(selector)
    assert outcome.status is Status.REFUSED
    assert "every container" in outcome.detail


async def test_labels_with_and_without_value(hands: Hands, runtime: DockerRuntime) -> None:
    key = hands.name("key")
    one = hands.run(labels={key: "a"})
    hands.run(labels={key: "b"})
    assert [m.id for m in (await runtime.find(Selector(label=f"{key}=a"))).get()] == [one.id]
    assert len((await runtime.find(Selector(label=key))).get()) == 2


# --- states


async def test_running_is_restarted_once_with_its_grace(hands: Hands, runtime: DockerRuntime) -> None:
    container = hands.run(environment={"API_KEY": "secret"}, stop_signal="SIGTERM")
    before = (await runtime.inspect(container.id)).get()
    assert (before.state, before.running, before.paused) == ("running", True, False)
    assert before.init is True
    began = time.time()
    outcome = await runtime.restart(container.id, stop_timeout=5)
    assert outcome.ok, outcome.detail
    after = (await runtime.inspect(container.id)).get()
    assert after.incarnation != before.incarnation
    assert after.id == before.id
    assert after.started_at is not None
    assert after.started_at >= began - 1
    events = (await runtime.events(container.id, since=began, until=time.time() + 60)).get()
    actions = [e.action for e in events]
    assert actions.count("start") == 1
    # 20.10 says die, stop; 26.1 says stop, die.
    assert sorted(actions[-4:-2]) == ["die", "stop"]
    assert actions[-2:] == ["start", "restart"]
    assert events[0].signal == "15"


async def test_no_act_without_a_fresh_look(hands: Hands, runtime: DockerRuntime) -> None:
    container = hands.run()
    before = hands.state(container)["StartedAt"]
    assert (await runtime.restart(container.id, stop_timeout=1)).status is Status.UNAVAILABLE
    assert (await runtime.inspect(container.id)).ok
    assert (await runtime.restart(container.id, stop_timeout=1)).ok
    second = await runtime.restart(container.id, stop_timeout=1)
    assert second.status is Status.UNAVAILABLE
    assert "look before acting" in second.detail
    assert before != hands.state(container)["StartedAt"]


async def test_paused_is_not_touched(hands: Hands, runtime: DockerRuntime) -> None:
    container = hands.run()
    await off_loop(container.pause)
    seen = (await runtime.inspect(container.id)).get()
    assert seen.paused
    assert seen.state == "paused"
    outcome = await runtime.restart(container.id, stop_timeout=1)
    assert outcome.status is Status.UNAVAILABLE
    assert "paused" in outcome.detail
    assert hands.state(container)["Paused"] is True


async def test_stopped_by_a_person_is_not_started(hands: Hands, runtime: DockerRuntime) -> None:
    container = hands.run()
    await off_loop(container.stop, timeout=2)
    seen = (await runtime.inspect(container.id)).get()
    assert (seen.state, seen.running) == ("exited", False)
    assert seen.finished_at is not None
    assert (await runtime.restart(container.id, stop_timeout=1)).status is Status.UNAVAILABLE
    assert hands.state(container)["Status"] == "exited"


async def test_created_is_not_started(hands: Hands, runtime: DockerRuntime) -> None:
    container = hands.run(start=False)
    seen = (await runtime.inspect(container.id)).get()
    assert (seen.state, seen.started_at) == ("created", None)
    assert (await runtime.restart(container.id, stop_timeout=1)).status is Status.UNAVAILABLE
    assert hands.state(container)["Status"] == "created"


async def test_restarting_in_the_policys_backoff_is_not_touched(hands: Hands, runtime: DockerRuntime) -> None:
    container = hands.run("exit 3", restart_policy={"Name": "always"})
    await off_loop(until, "backoff", lambda: hands.state(container)["Restarting"])
    for _ in range(100):
        seen = (await runtime.inspect(container.id)).get()
        if seen.restarting:
            break
        await asyncio.sleep(0.02)
    assert seen.restarting
    assert seen.running, "Docker calls a container in backoff running"
    assert seen.exit_code == 3
    assert (await runtime.restart(container.id, stop_timeout=1)).status is Status.UNAVAILABLE


async def test_removed_in_between(hands: Hands, runtime: DockerRuntime) -> None:
    container = hands.run()
    assert (await runtime.inspect(container.id)).ok
    await off_loop(container.remove, force=True)
    outcome = await runtime.restart(container.id, stop_timeout=1)
    assert outcome.status is Status.NOT_FOUND
    assert (await runtime.inspect(container.id)).status is Status.NOT_FOUND


async def test_stop_succeeds_start_fails_and_a_start_mends_it(hands: Hands, runtime: DockerRuntime, tmp_path: Path) -> None:
    source = tmp_path / "model"
    source.mkdir()
    container = hands.run(
        mounts=[{"Type": "bind", "Source": str(source), "Target": "/model", "ReadOnly": True}],
        restart_policy={"Name": "unless-stopped"},
    )
    assert (await runtime.inspect(container.id)).ok
    source.rmdir()
    outcome = await runtime.restart(container.id, stop_timeout=2)
    assert outcome.status is Status.REFUSED
    assert "500" in outcome.detail
    seen = (await runtime.inspect(container.id)).get()
    assert (seen.state, seen.running) == ("exited", False)
    assert seen.error
    source.mkdir()
    assert (await runtime.start(container.id)).ok
    assert (await runtime.inspect(container.id)).get().running


async def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(hands: Hands, runtime: DockerRuntime) -> None:
    container = hands.run("trap '' TERM; while :; do sleep 1; done", init=False)
    before = (await runtime.inspect(container.id)).get()
    outcome = await runtime.restart(container.id, stop_timeout=2)
    assert outcome.ok, outcome.detail
    assert 1.9 <= outcome.seconds < 16
    assert (await runtime.inspect(container.id)).get().incarnation != before.incarnation


async def test_an_ambiguous_timeout_is_no_failure_and_the_daemon_goes_on_once(hands: Hands, runtime: DockerRuntime) -> None:
    """The client gives up long before the daemon: the answer is `timed_out`, and inspect tells the truth."""
    container = hands.run("trap '' TERM; while :; do sleep 1; done", init=False)
    before = hands.state(container)["StartedAt"]
    began = time.time()
    api = DockerApi(DockerHost("hasty", f"unix://{SOCKET}"))
    outcome = await api.post(f"/containers/{container.id}/restart", {"t": "3"}, read_timeout=0.5)
    assert outcome.status is Status.TIMED_OUT
    assert api.health.up is False
    assert hands.state(container)["StartedAt"] == before
    await off_loop(until, "the daemon went on", lambda: hands.state(container)["StartedAt"] != before)
    assert (await api.get("/_ping")).ok
    assert api.health.up is True
    api.close()
    events = (await runtime.events(container.id, since=began, until=time.time())).get()
    assert [e.action for e in events].count("start") == 1


# --- reading


async def test_top_and_logs_are_bounded(hands: Hands, runtime: DockerRuntime) -> None:
    script = "i=0; while [ $i -lt 2000 ]; do echo line-$i; i=$((i+1)); done; sleep 0.2; echo end >&2; sleep 1000 & wait"
    container = hands.run(script)
    await off_loop(until, "the log", lambda: b"end" in container.logs())
    text = (await runtime.logs(container.id, lines=1000, max_bytes=5000)).get()
    assert len(text.encode()) <= 5000
    assert text.rstrip().endswith("end")
    assert "line-1999" in text
    assert "line-10\n" not in text
    processes = (await runtime.top(container.id)).get()
    assert any("sh" in p.command or "init" in p.command for p in processes)
    assert all(p.pid > 0 and p.stat for p in processes)
    assert any(p.pid == (hands.state(container)["Pid"]) for p in processes)


async def test_logs_of_a_terminal_are_plain(hands: Hands, runtime: DockerRuntime) -> None:
    container = hands.run("echo hello; sleep 1000 & wait", tty=True)
    await off_loop(until, "the log", lambda: b"hello" in container.logs())
    assert "hello" in (await runtime.logs(container.id, lines=10, max_bytes=1000)).get()


async def test_who_acted_is_told_by_events(hands: Hands, runtime: DockerRuntime) -> None:
    container = hands.run(restart_policy={"Name": "always"})
    began = time.time()
    await off_loop(container.stop, timeout=2)
    await off_loop(container.start)
    actions = [e.action for e in (await runtime.events(container.id, since=began - 0.5, until=time.time())).get()]
    assert "stop" in actions
    assert "restart" not in actions
    began = time.time()
    await off_loop(container.restart, timeout=2)
    actions = [e.action for e in (await runtime.events(container.id, since=began, until=time.time())).get()]
    assert actions[-1] == "restart"


async def test_other_owners_and_watchdogs_are_named(hands: Hands, runtime: DockerRuntime) -> None:
    swarm = hands.run(labels={"com.docker.swarm.task.id": "x"})
    healed = hands.run(labels={"autoheal": "true"})
    left_alone = hands.run(labels={"autoheal": "false"})
    assert (await runtime.inspect(swarm.id)).get().owner == "swarm"
    assert (await runtime.inspect(healed.id)).get().watchdog_labels == ("autoheal=true",)
    assert (await runtime.inspect(left_alone.id)).get().watchdog_labels == ()
    hands.client.images.get("stuckproof.local/spb-tiny:1").tag("stuckproof.local/spb-autoheal", "1")
    try:
        watchdog = hands.client.containers.create(
            "stuckproof.local/spb-autoheal:1", ["sleep", "1000"], network_mode="none", name=hands.name("wd")
        )
        try:
            watchdog.start()
            found = (await runtime.watchdogs()).get()
            assert any(watchdog.name in text for text in found)
        finally:
            watchdog.remove(force=True)
    finally:
        hands.client.images.remove("stuckproof.local/spb-autoheal:1", noprune=True)


# --- the daemon away, slow, or wrong


async def test_an_unreachable_daemon_is_unavailable_and_says_what_to_do(tmp_path: Path) -> None:
    gone = DockerRuntime(DockerHost("gone", f"unix://{tmp_path}/none.sock"))
    outcome = await gone.ping()
    assert outcome.status is Status.UNAVAILABLE
    assert "is the Docker Engine running" in outcome.detail
    assert gone.health.up is False
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    closed = DockerRuntime(DockerHost("closed", f"tcp://127.0.0.1:{port}"))
    assert (await closed.inspect("a" * 64)).status is Status.UNAVAILABLE


async def test_a_daemon_that_comes_back_is_used_again(hands: Hands, tmp_path: Path) -> None:
    """The daemon's socket disappears and returns, as with a restart of dockerd."""
    path = tmp_path / "docker.sock"
    container = hands.run()
    rt = DockerRuntime(DockerHost("moving", f"unix://{path}"))
    path.symlink_to(SOCKET)
    assert (await rt.inspect(container.id)).ok
    path.unlink()
    lost = await rt.restart(container.id, stop_timeout=1)
    assert lost.status is Status.UNAVAILABLE, "never sent, so not ambiguous"
    path.symlink_to(SOCKET)
    assert (await rt.restart(container.id, stop_timeout=1)).status is Status.UNAVAILABLE, "a new look is needed"
    assert (await rt.inspect(container.id)).ok
    assert (await rt.restart(container.id, stop_timeout=1)).ok
    await rt.close()


# --- the proxy


@contextlib.asynccontextmanager
async def proxied(tmp_path: Path, docker_socket: str = SOCKET, **options: Any) -> AsyncIterator[str]:
    path = str(tmp_path / "proxy.sock")
    runner = web.AppRunner(SocketProxy(docker_socket, **options).app(), access_log=None)
    await runner.setup()
    await web.UnixSite(runner, path).start()
    try:
        yield path
    finally:
        await runner.cleanup()


async def test_through_the_proxy_everything_that_we_need_works(hands: Hands, tmp_path: Path) -> None:
    container = hands.run(environment={"VLLM_API_KEY": "secret-key"})
    async with proxied(tmp_path) as path:
        rt = DockerRuntime(DockerHost("proxied", f"unix://{path}"))
        assert (await rt.ping()).get().version
        assert len((await rt.find(Selector(container=container.name))).get()) == 1
        before = (await rt.inspect(container.id)).get()
        direct = DockerRuntime(DockerHost("direct", f"unix://{SOCKET}"))
        assert before == (await direct.inspect(container.id)).get(), "nothing that we read is lost"
        assert (await rt.top(container.id)).get()
        assert (await rt.logs(container.id, lines=10, max_bytes=1000)).ok
        outcome = await rt.restart(container.id, stop_timeout=3)
        assert outcome.ok, outcome.detail
        after = (await rt.inspect(container.id)).get()
        assert after.incarnation != before.incarnation
        assert (await rt.events(container.id, since=time.time() - 60, until=time.time())).get()
        assert (await rt.watchdogs()).ok
        await off_loop(container.stop, timeout=1)
        assert (await rt.inspect(container.id)).ok
        assert (await rt.start(container.id)).ok
        await rt.close()
        await direct.close()


async def test_the_proxy_refuses_all_else_and_hides_secrets(hands: Hands, tmp_path: Path) -> None:
    container = hands.run(environment={"VLLM_API_KEY": "secret-key"})
    cid = container.id
    async with proxied(tmp_path) as path:
        connector = aiohttp.UnixConnector(path=path)
        async with aiohttp.ClientSession(connector=connector) as http:
            answer = await http.get(f"http://d/v1.41/containers/{cid}/json")
            assert answer.status == 200
            assert "secret-key" not in await answer.text()
            answer = await http.get("http://d/containers/json?all=1")
            assert "Command" not in (await answer.json())[0]
            create = {"Image": "stuckproof.local/spb-tiny:1", "HostConfig": {"Privileged": True, "Binds": ["/:/host"]}}
            answer = await http.post("http://d/v1.41/containers/create", json=create)
            assert answer.status == 403
            assert "not allowed" in (await answer.json())["message"]
            name = container.name
            for method, target in [
                ("POST", f"/v1.41/containers/{cid}/stop"),
                ("POST", f"/v1.41/containers/{cid}/kill"),
                ("POST", f"/v1.41/containers/{cid}/exec"),
                ("POST", f"/v1.41/containers/{cid}/update"),
                ("DELETE", f"/v1.41/containers/{cid}"),
                ("POST", f"/v1.41/containers/{cid[:12]}/restart?t=1"),
                ("POST", f"/v1.41/containers/{name}/restart?t=1"),
                ("POST", f"/v1.41/containers/{cid}/restart"),
                ("POST", f"/v1.41/containers/{cid}/restart?t=1&signal=SIGKILL"),
                ("POST", f"/v1.41/containers/{cid}/restart?t=1&t=2"),
                ("POST", f"/v1.41/containers/x/../{cid}/restart?t=1"),
                ("POST", f"/v1.41/containers/{cid}%2Frestart?t=1"),
                ("GET", f"/v1.41/containers/{cid}/archive?path=/etc/passwd"),
                ("GET", f"/v1.41/containers/{cid}/top?ps_args=eww"),
                ("GET", f"/v1.41/containers/{cid}/logs?stdout=1&follow=1&tail=1"),
                ("GET", "/v1.41/events"),
                ("GET", "/v1.41/images/json"),
                ("GET", "/v1.41/services"),
                ("POST", "/v1.41/build"),
                ("POST", "/v1.41/services/create"),
            ]:
                answer = await http.request(method, URL(f"http://d{target}", encoded=True))
                text = await answer.text()
                assert answer.status == 403, (method, target, answer.status, text)
            answer = await http.post(f"http://d/v1.41/containers/{cid}/restart?t=1", headers={"Origin": "http://x"})
            assert answer.status == 403
            answer = await http.post(f"http://d/v1.41/containers/{cid}/start", json={"HostConfig": {}})
            assert answer.status == 403
    assert hands.state(container)["Status"] == "running"


async def test_the_proxy_acts_only_on_labelled_containers_if_told(hands: Hands, tmp_path: Path) -> None:
    ours = hands.run(labels={"stuckproof.restart": "yes"})
    theirs = hands.run()
    async with proxied(tmp_path, only_label="stuckproof.restart=yes") as path:
        rt = DockerRuntime(DockerHost("labelled", f"unix://{path}"))
        assert (await rt.inspect(theirs.id)).ok
        outcome = await rt.restart(theirs.id, stop_timeout=1)
        assert outcome.status is Status.REFUSED
        assert "has no label" in outcome.detail
        assert (await rt.inspect(ours.id)).ok
        assert (await rt.restart(ours.id, stop_timeout=1)).ok
        await rt.close()


def test_the_socket_needs_no_more_than_this_user() -> None:
    """A reminder in code: these tests hold the real socket."""
    assert os.access(SOCKET, os.R_OK | os.W_OK)
