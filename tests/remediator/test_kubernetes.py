"""The Kubernetes back end asks for exactly one pod's removal, by uid, and knows when its successor runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llm_common.kube import Kube, KubeAccess, KubeError
from llm_remediator.containers import Selector
from llm_remediator.outcome import Status
from llm_remediator.runtime_kubernetes import KubernetesRuntime
from remediator.kube_api import TOKEN, Cluster, served

VLLM = Selector(pods="app=vllm", namespace="llm")


class Stage:
    """A cluster with one vLLM pod, and the runtime that looks at it."""

    def __init__(self, cluster: Cluster, kube: Kube) -> None:
        self.cluster = cluster
        self.kube = kube
        self.now = 0.0
        self.runtime = KubernetesRuntime(kube, [VLLM], monotonic=lambda: self.now, sleep=self.sleep)

    async def sleep(self, seconds: float) -> None:
        """Virtual: the loop may turn, and that much time is over."""
        self.now += seconds
        await asyncio.sleep(0)

    async def id(self, selector: Selector = VLLM) -> str:
        found = (await self.runtime.find(selector)).get()
        assert len(found) == 1
        return found[0].id


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    cluster = Cluster()
    cluster.pod("vllm-a")
    async with served(cluster) as url:
        kube = Kube(KubeAccess(url, str(token), namespace="llm"))
        yield Stage(cluster, kube)
        await kube.close()


async def test_a_pod_is_a_container_whose_start_is_its_engine_containers(stage: Stage) -> None:
    box = (await stage.runtime.inspect(await stage.id())).get()
    assert (box.name, box.running, box.restarting, box.state) == ("llm/vllm-a", True, False, "running")
    assert box.started_at_raw == "uid-1@2026-11-30T03:01:00Z"
    assert box.addresses == ("10.1.0.1", "vllm-a")
    assert box.ports == (8000,)
    assert box.stop_timeout == 60


async def test_it_is_evicted_by_its_uid_and_the_successor_awaited(stage: Stage) -> None:
    identity = await stage.id()
    before = (await stage.runtime.inspect(identity)).get()
    assert (await stage.runtime.restart(identity, stop_timeout=30)).ok
    assert stage.cluster.removed == ["uid-1"]
    after = (await stage.runtime.inspect(identity)).get()
    assert after.id == before.id, "the same controller"
    assert after.started_at_raw != before.started_at_raw, "another incarnation"


async def test_delete_instead_of_evict(stage: Stage) -> None:
    runtime = KubernetesRuntime(stage.kube, [VLLM], evict=False)
    identity = (await runtime.find(VLLM)).get()[0].id
    await runtime.inspect(identity)
    assert (await runtime.restart(identity, stop_timeout=30)).ok
    assert ("DELETE", "/api/v1/namespaces/llm/pods/vllm-a") in stage.cluster.calls
    assert not any(path.endswith("/eviction") for _, path in stage.cluster.calls)


async def test_nothing_is_removed_without_a_look_in_the_same_decision(stage: Stage) -> None:
    identity = await stage.id()
    assert (await stage.runtime.restart(identity, stop_timeout=30)).status is Status.UNAVAILABLE
    await stage.runtime.inspect(identity)
    assert (await stage.runtime.restart(identity, stop_timeout=30)).ok
    assert (await stage.runtime.restart(identity, stop_timeout=30)).status is Status.UNAVAILABLE
    assert stage.cluster.removed == ["uid-1"]


async def test_a_pod_that_was_replaced_since_the_look_is_not_touched(stage: Stage) -> None:
    identity = await stage.id()
    await stage.runtime.inspect(identity)
    del stage.cluster.pods["vllm-a"]
    stage.cluster.pod("vllm-a")
    outcome = await stage.runtime.restart(identity, stop_timeout=30)
    assert outcome.status is Status.UNAVAILABLE
    assert "another one by now" in outcome.detail
    assert not stage.cluster.removed


async def test_a_disruption_budget_is_respected(stage: Stage) -> None:
    stage.cluster.budget_allows = False
    identity = await stage.id()
    await stage.runtime.inspect(identity)
    outcome = await stage.runtime.restart(identity, stop_timeout=30)
    assert outcome.status is Status.UNAVAILABLE
    assert "PodDisruptionBudget" in outcome.detail
    assert not stage.cluster.removed


async def test_a_pod_that_nobody_would_make_again_is_refused(stage: Stage) -> None:
    stage.cluster.pods.clear()
    stage.cluster.pod("bare", owner=None)
    identity = await stage.id()
    await stage.runtime.inspect(identity)
    outcome = await stage.runtime.restart(identity, stop_timeout=30)
    assert outcome.status is Status.REFUSED
    assert "no controller" in outcome.detail


async def test_several_pods_are_several_matches_and_going_ones_are_none(stage: Stage) -> None:
    stage.cluster.pod("vllm-b")
    assert len((await stage.runtime.find(VLLM)).get()) == 2
    stage.cluster.pods["vllm-b"]["metadata"]["deletionTimestamp"] = "2026-11-30T04:00:00Z"
    assert len((await stage.runtime.find(VLLM)).get()) == 1
    stage.cluster.pods["vllm-a"]["status"]["phase"] = "Failed"
    assert (await stage.runtime.find(VLLM)).get() == ()


async def test_pods_of_one_statefulset_are_told_apart(stage: Stage) -> None:
    stage.cluster.pods.clear()
    first, second = (Selector(pods=f"app=vllm,pod={n}", namespace="llm") for n in (0, 1))
    for n in (0, 1):
        stage.cluster.pod(f"vllm-{n}", "sts-1", pod=str(n))
    stage.runtime = KubernetesRuntime(stage.kube, [first, second])
    identity = await stage.id(second)
    assert (await stage.runtime.inspect(identity)).get().name == "llm/vllm-1"
    assert (await stage.runtime.restart(identity, stop_timeout=1)).ok
    assert stage.cluster.removed == ["uid-3"]
    assert "vllm-0" in stage.cluster.pods


async def test_a_pod_that_is_starting_or_crash_looping_is_not_plainly_running(stage: Stage) -> None:
    engine = stage.cluster.pods["vllm-a"]["status"]["containerStatuses"][1]
    engine["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
    engine["lastState"] = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-11-30T03:05:00Z"}}
    identity = await stage.id()
    box = (await stage.runtime.inspect(identity)).get()
    assert (box.running, box.restarting, box.error, box.oom_killed) == (False, True, "CrashLoopBackOff", True)
    assert (await stage.runtime.restart(identity, stop_timeout=1)).status is Status.UNAVAILABLE


async def test_the_successor_is_seen_through_a_watch(stage: Stage) -> None:
    stage.cluster.remakes = False
    identity = await stage.id()
    await stage.runtime.inspect(identity)
    acting = asyncio.create_task(stage.runtime.restart(identity, stop_timeout=30))
    while not stage.cluster.removed:
        await asyncio.sleep(0.01)
    stage.cluster.pod("vllm-z")
    assert (await asyncio.wait_for(acting, 20)).ok


async def test_watches_that_end_at_once_do_not_become_a_storm_of_lists(stage: Stage) -> None:
    """410, a verb that RBAC lacks, a proxy that cuts streams: each ends a watch at once, for two minutes."""
    stage.cluster.remakes = stage.cluster.watches = False
    identity = await stage.id()
    await stage.runtime.inspect(identity)
    outcome = await stage.runtime.restart(identity, stop_timeout=30)
    assert outcome.status is Status.TIMED_OUT
    assert stage.now == pytest.approx(150.0)
    assert len(stage.cluster.calls) < 320


async def test_an_empty_selector_is_refused(stage: Stage) -> None:
    assert (await stage.runtime.find(Selector())).status is Status.REFUSED
    assert not stage.cluster.calls


async def test_diagnostics_and_what_is_never_done(stage: Stage) -> None:
    identity = await stage.id()
    assert (await stage.runtime.logs(identity, lines=10, max_bytes=1000)).get() == "last line\n"
    assert (await stage.runtime.start(identity)).status is Status.REFUSED
    assert (await stage.runtime.ping()).get().version == "v1.33.0"
    assert (await stage.runtime.inspect("rs-9.00000000")).status is Status.NOT_FOUND


async def test_a_wrong_token_and_a_dead_api_are_not_the_same(stage: Stage, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_text("wrong")
    runtime = KubernetesRuntime(Kube(KubeAccess(stage.kube.access.api, str(bad), namespace="llm")), [VLLM])
    refused = await runtime.find(VLLM)
    assert refused.status is Status.REFUSED
    assert "401" in refused.detail
    await runtime.close()
    gone = KubernetesRuntime(Kube(KubeAccess("http://127.0.0.1:1")), [VLLM])
    assert (await gone.find(VLLM)).status is Status.UNAVAILABLE
    assert not gone.health.up
    await gone.close()


async def test_an_unanswered_request_may_have_been_done(stage: Stage) -> None:
    over, closed = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()
        await writer.wait_closed()
        closed.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    kube = Kube(KubeAccess(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    with pytest.raises(KubeError) as caught:
        await kube.call("POST", "/x", timeout=0.2)
    assert caught.value.sent
    await kube.close()
    over.set()
    await closed.wait()
    server.close()
