"""Of several remediators one acts: whatever the network and the clocks do, never two at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from llm_common.kube import Kube, KubeAccess, KubeError, KubeReply
from llm_remediator.lease import Lease, LeaseConfig
from remediator.kube_api import TOKEN, Cluster, served

CONFIG = LeaseConfig("stuckproof", "llm", duration=30)


class Store:
    """One Lease object with optimistic concurrency, behind a network that may fail before or after the write."""

    def __init__(self) -> None:
        self.body: dict[str, Any] | None = None
        self.version = 0
        self.cut = ""
        self.access = KubeAccess("http://x", namespace="llm")

    async def call(self, method: str, path: str, *, body: Mapping[str, Any] | None = None, **_: Any) -> KubeReply:
        if self.cut == "before":
            raise KubeError("cut")
        reply = self._do(method, body)
        if self.cut == "after":
            raise KubeError("cut", sent=True)
        return reply

    def _do(self, method: str, body: Mapping[str, Any] | None) -> KubeReply:
        if method == "GET":
            return KubeReply(200, self.body) if self.body else KubeReply(404, None)
        assert body is not None
        sent = body["metadata"].get("resourceVersion")
        if (method == "POST") == bool(self.body) or (self.body and sent != str(self.version)):
            return KubeReply(409, {"message": "conflict"})
        self.version += 1
        self.body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        return KubeReply(200, self.body)


def contender(store: Any, name: str, now: list[float], skew: float = 0.0) -> Lease:
    async def never(_: float) -> None:
        raise AssertionError

    return Lease(store, CONFIG, name, lambda: now[0], lambda: 1e9 + now[0] + skew, never)


steps = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]), st.sampled_from(["", "", "", "before", "after"]), st.sampled_from([0.5, 5, 11, 31])
    ),
    max_size=60,
)


@given(steps, st.floats(-3600, 3600))
def test_never_two_leaders(life: list[tuple[str, str, float]], skew: float) -> None:
    asyncio.run(contest(life, skew))


async def contest(life: list[tuple[str, str, float]], skew: float) -> None:
    store, now = Store(), [0.0]
    leases = {name: contender(store, name, now, skew * i) for i, name in enumerate("abc")}
    for name, cut, passed in life:
        store.cut = cut
        await leases[name].contend()
        assert sum(lease.leading for lease in leases.values()) <= 1
        now[0] += passed
        assert sum(lease.leading for lease in leases.values()) <= 1


async def test_a_holder_renews_and_another_takes_over_when_it_stops() -> None:
    store, now = Store(), [0.0]
    a, b = contender(store, "a", now), contender(store, "b", now)
    await a.contend()
    await b.contend()
    assert (a.leading, b.leading) == (True, False)
    assert "a holds the lease" in b.words
    now[0] = 19
    assert a.leading
    now[0] = 21
    assert not a.leading, "it stops before the others may take it"
    await b.contend()
    assert not b.leading
    now[0] = 31
    await b.contend()
    assert b.leading
    assert store.body is not None
    assert store.body["spec"]["leaseTransitions"] == 1


async def test_without_the_api_nobody_leads() -> None:
    store, now = Store(), [0.0]
    store.cut = "before"
    a = contender(store, "a", now)
    await a.contend()
    assert not a.leading
    assert "no lease, no action" in a.words


async def test_against_an_http_server(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    cluster, now = Cluster(), [0.0]
    async with served(cluster) as url:
        kube = Kube(KubeAccess(url, str(token), namespace="llm"))
        a, b = contender(kube, "a", now), contender(kube, "b", now)
        await a.contend()
        await b.contend()
        assert (a.leading, b.leading) == (True, False)
        now[0] = 10
        await a.contend()
        now[0] = 35
        await b.contend()
        assert (a.leading, b.leading) == (False, False), "renewed at 10: b has seen that change only now"
        now[0] = 66
        await b.contend()
        assert b.leading
        await kube.close()
