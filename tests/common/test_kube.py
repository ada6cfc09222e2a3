"""The Kubernetes API client against servers that answer as real ones do: in pieces, at length, and with old versions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from llm_common import kube as module
from llm_common.kube import Kube, KubeAccess, KubeError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def asking(handler: Handler) -> AsyncIterator[Kube]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    async with TestServer(app) as server:
        kube = Kube(KubeAccess(str(server.make_url("")).rstrip("/")))
        try:
            yield kube
        finally:
            await kube.close()


def in_pieces(pieces: list[bytes]) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0.01)
        return response

    return handle


async def test_an_answer_that_comes_in_pieces_is_read_whole() -> None:
    text = json.dumps({"items": [{"metadata": {"name": f"pod-{number}" + "x" * 1000}} for number in range(300)]}).encode()
    async with asking(in_pieces([text[:10], text[10:100_000], text[100_000:]])) as kube:
        reply = await kube.call("GET", "/api/v1/namespaces/llm/pods")
    assert len(reply.body["items"]) == 300


async def test_an_answer_without_end_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODY_LIMIT", 1000)
    async with asking(in_pieces([b'{"items": [', b" " * 2000, b"]}"])) as kube:
        with pytest.raises(KubeError, match="larger than") as caught:
            await kube.call("GET", "/api/v1/namespaces/llm/pods")
    assert caught.value.sent


async def watched(handler: Handler) -> list[str]:
    async with asking(handler) as kube:
        found = kube.watch("/api/v1/pods", params={"labelSelector": "a=b"}, version="7", seconds=2.0)
        return [f"{kind} {item['metadata']['name']}" async for kind, item in found]


def event(kind: str, name: str, padding: int = 0) -> bytes:
    return json.dumps({"type": kind, "object": {"metadata": {"name": name, "x": "y" * padding}}}).encode() + b"\n"


async def test_a_watch_reads_events_of_any_size_and_cut_anywhere() -> None:
    """A pod with its managed fields and annotations is easily longer than what a line reader takes by default."""
    stream = event("ADDED", "small") + event("MODIFIED", "large", padding=600_000) + event("DELETED", "last")
    assert await watched(in_pieces([stream[:20], stream[20:300_000], stream[300_000:]])) == [
        "ADDED small",
        "MODIFIED large",
        "DELETED last",
    ]


@pytest.mark.parametrize(
    "end",
    [
        b'{"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}\n' + event("ADDED", "never"),
        b'{"type": "ADDED", "object": {"meta',
        b"not json\n" + event("ADDED", "never"),
    ],
    ids=["410 in the stream", "cut off", "not JSON"],
)
async def test_a_watch_ends_quietly_where_the_stream_cannot_go_on(end: bytes) -> None:
    assert await watched(in_pieces([event("ADDED", "one"), end])) == ["ADDED one"]


@pytest.mark.parametrize("status", [401, 403, 410, 500])
async def test_a_refused_watch_ends_quietly(status: int) -> None:
    async def refuse(request: web.Request) -> web.Response:
        assert request.query["resourceVersion"] == "7"
        return web.json_response({"message": "no"}, status=status)

    assert await watched(refuse) == []
