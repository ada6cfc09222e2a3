"""The proxy in front of a daemon that a test directs; the real one is in tests/e2e/test_docker_runtime.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from llm_common.errors import ConfigError
from llm_remediator import socket_proxy
from llm_remediator.socket_proxy import SocketProxy
from llm_remediator.socket_rules import PROXY_HEADER
from remediator.test_docker_api import VERSION, daemon

ID = "0123456789abcdef" * 4
SERVICE = "abcdefghijklmnopqrstuvwxy"


@asynccontextmanager
async def client(docker: Path, listen: Path, **options: Any) -> AsyncIterator[aiohttp.ClientSession]:
    runner = web.AppRunner(SocketProxy(str(docker), **options).app(), access_log=None)
    await runner.setup()
    await web.UnixSite(runner, str(listen)).start()
    try:
        async with aiohttp.ClientSession("http://docker", connector=aiohttp.UnixConnector(path=str(listen))) as http:
            yield http
    finally:
        await runner.cleanup()


async def box(request: web.Request) -> web.StreamResponse:
    if request.path.endswith("/json") and ID in request.path:
        return web.json_response({"Id": ID, "Config": {"Labels": {"team": "x"}, "Env": ["KEY=secret"]}, "State": {}})
    if request.path.endswith("/restart"):
        return web.Response(status=204)
    if request.path.endswith("/logs"):
        return web.Response(body=b"\x01\0\0\0\0\0\0\x03log", content_type="application/octet-stream")
    return web.json_response({"message": "no such thing"}, status=404)


async def test_answers_come_through_statuses_bodies_and_the_daemons_word(tmp_path: Path) -> None:
    async with daemon(tmp_path / "d", box) as seen, client(tmp_path / "d", tmp_path / "p") as http:
        answer = await http.get("/version")
        assert await answer.json() == VERSION
        assert answer.headers[PROXY_HEADER] == "1"
        answer = await http.get(f"/v1.44/containers/{ID}/logs?tail=5&stdout=1")
        assert await answer.read() == b"\x01\0\0\0\0\0\0\x03log"
        answer = await http.get("/v1.44/events?since=1&until=2")
        assert answer.status == 404
        assert (await answer.json())["message"] == "no such thing"
        assert (await http.post(f"/v1.44/containers/{ID}/restart?t=5")).status == 204
    assert seen[-2:] == [f"GET /v1.44/containers/{ID}/json", f"POST /v1.44/containers/{ID}/restart?t=5"]


async def test_no_act_on_what_cannot_be_inspected_or_lacks_the_label(tmp_path: Path) -> None:
    async with daemon(tmp_path / "d", box) as seen:
        for label, status in {"team=x": 204, "team": 204, "team=y": 403, "other": 403}.items():
            async with client(tmp_path / "d", tmp_path / f"p-{label}", only_label=label) as http:
                assert (await http.post(f"/containers/{ID}/restart?t=5")).status == status, label
        async with client(tmp_path / "d", tmp_path / "p") as http:
            unknown = await http.post(f"/containers/{'f' * 64}/restart?t=5")
            assert unknown.status == 403
            assert "cannot be inspected (404)" in (await unknown.json())["message"]
    assert sum("restart" in line for line in seen) == 2


async def test_a_service_update_must_be_json_and_change_nothing(tmp_path: Path) -> None:
    spec = {"Name": "s", "TaskTemplate": {"ContainerSpec": {"Image": "a"}}, "Labels": {"team": "x"}}

    async def service(request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response({"ID": SERVICE, "Spec": spec})
        return web.json_response({"Warnings": None})

    path = f"/v1.44/services/{SERVICE}/update?version=7"
    forced = {**spec, "TaskTemplate": {**spec["TaskTemplate"], "ForceUpdate": 1}}  # type: ignore[dict-item]
    async with (
        daemon(tmp_path / "d", service) as seen,
        client(tmp_path / "d", tmp_path / "p", swarm=True, only_label="team=x") as http,
    ):
        assert (await http.post(path, json=forced)).status == 200
        for body in (b"", b"[]", b"{", b"[" * 100_000):
            assert (await http.post(path, data=body)).status == 403
        assert (await http.post(path, json={**forced, "Name": "t"})).status == 403
    assert sum("update" in line for line in seen) == 1


async def test_a_daemon_that_is_away_or_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_proxy, "_READ_TIMEOUT", 0.1)

    async def hang(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(5)
        return web.Response()

    async with client(tmp_path / "none", tmp_path / "p") as http:
        answer = await http.get("/version")
        assert answer.status == 502
    async with daemon(tmp_path / "d", hang), client(tmp_path / "d", tmp_path / "q") as http:
        answer = await http.get("/containers/json")
        assert answer.status == 504


async def test_an_answer_without_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_proxy, "_BODY_LIMIT", 1000)

    async def pour(_: web.Request) -> web.StreamResponse:
        return web.json_response(["x" * 2000])

    async with daemon(tmp_path / "d", pour), client(tmp_path / "d", tmp_path / "p") as http:
        assert (await http.get("/containers/json")).status == 502


async def test_an_answer_that_breaks_off_is_not_passed_on_as_whole(tmp_path: Path) -> None:
    async def half(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"x" * 10)
        assert request.transport is not None
        request.transport.close()
        return response

    async with daemon(tmp_path / "d", half), client(tmp_path / "d", tmp_path / "p") as http:
        with pytest.raises(aiohttp.ClientError):
            await (await http.get(f"/containers/{ID}/logs?tail=5")).read()


async def test_what_is_in_the_place_of_its_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("keep me")
    with pytest.raises(ConfigError, match="no socket"):
        await socket_proxy.run(f"unix:{path}", SocketProxy("/none"))
    assert path.read_text() == "keep me"
    with pytest.raises(ConfigError, match="HOST:PORT"):
        await socket_proxy.run("nonsense", SocketProxy("/none"))
