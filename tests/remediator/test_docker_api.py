"""The Docker API client against a daemon that a test directs: versions, TLS, hostile answers, slow drips."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from llm_remediator import docker_api
from llm_remediator.config import DockerHost
from llm_remediator.docker_api import DockerApi
from llm_remediator.outcome import Status
from llm_remediator.runtime_docker import DockerRuntime
from llm_remediator.socket_rules import PROXY_HEADER

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
VERSION = {"Version": "29.1.0", "ApiVersion": "1.56", "MinAPIVersion": "1.40"}


@asynccontextmanager
async def daemon(path: Path, handler: Handler | None = None, *, version: object = VERSION) -> AsyncIterator[list[str]]:
    """Listens on a Unix socket; yields the requests it saw."""
    seen: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append(f"{request.method} {request.path_qs}")
        if request.path == "/version":
            return version if isinstance(version, web.Response) else web.json_response(version)
        return await handler(request) if handler is not None else web.json_response([])

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, str(path)).start()
    try:
        yield seen
    finally:
        await runner.cleanup()


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    return tmp_path / "d.sock"


def api_of(path: Path) -> DockerApi:
    return DockerApi(DockerHost("local", f"unix://{path}"))


async def test_the_version_is_agreed_on_once_and_used(socket_path: Path) -> None:
    async with daemon(socket_path) as seen:
        api = api_of(socket_path)
        assert (await api.get("/containers/json", {"all": "1"})).ok
        assert (await api.get("/containers/json")).ok
        api.close()
    assert seen == ["GET /version", "GET /v1.44/containers/json?all=1", "GET /v1.44/containers/json"]


async def test_a_ping_in_between_never_takes_the_version_away(socket_path: Path) -> None:
    async with daemon(socket_path) as seen:
        api = api_of(socket_path)
        await api.negotiate()
        await asyncio.gather(*(call() for _ in range(10) for call in (api.negotiate, lambda: api.get("/containers/json"))))
        api.close()
    assert all(line in ("GET /version", "GET /v1.44/containers/json") for line in seen)


async def test_a_replaced_daemon_is_negotiated_with_anew(socket_path: Path) -> None:
    async def too_new(request: web.Request) -> web.StreamResponse:
        return web.json_response({"message": "client version 1.44 is too new"}, status=400)

    async with daemon(socket_path, too_new) as seen:
        api = api_of(socket_path)
        assert (await api.get("/x")).status is Status.REFUSED
        await api.get("/x")
        api.close()
    assert seen.count("GET /version") == 2


async def test_statuses_and_the_daemons_own_words(socket_path: Path) -> None:
    async def say(request: web.Request) -> web.StreamResponse:
        return web.json_response({"message": "the driver said no"}, status=int(request.query["s"]))

    async with daemon(socket_path, say):
        api = api_of(socket_path)
        for code, status in {404: Status.NOT_FOUND, 403: Status.REFUSED, 409: Status.REFUSED, 500: Status.REFUSED}.items():
            outcome = await api.post("/x", {"s": str(code)}, read_timeout=5)
            assert outcome.status is status
            assert f"{code} the driver said no" in outcome.detail
        assert api.health.up, "it answers: that it refuses is another matter"
        api.close()


async def test_a_redirect_is_not_followed(socket_path: Path) -> None:
    async def away(request: web.Request) -> web.StreamResponse:
        raise web.HTTPMovedPermanently("/elsewhere")

    async with daemon(socket_path, away) as seen:
        api = api_of(socket_path)
        assert (await api.post("/x", read_timeout=5)).status is Status.REFUSED
        api.close()
    assert not any("elsewhere" in line for line in seen)


async def test_what_is_no_docker_or_a_proxy_that_refuses_is_down(socket_path: Path) -> None:
    async with daemon(socket_path, version=web.Response(text="<html>")):
        api = api_of(socket_path)
        outcome = await api.get("/containers/json")
        assert outcome.status is Status.REFUSED
        assert "does not answer as a Docker API" in outcome.detail
        api.close()
    socket_path.unlink(missing_ok=True)
    async with daemon(socket_path, version=web.json_response({"message": "forbidden by proxy"}, status=403)):
        api = api_of(socket_path)
        assert (await api.negotiate()).status is Status.REFUSED
        assert not api.health.up
        assert "forbidden by proxy" in api.health.reason
        api.close()


async def test_silence_after_a_post_is_ambiguous_and_after_a_get_a_timeout(socket_path: Path) -> None:
    posts = 0

    async def hang(request: web.Request) -> web.StreamResponse:
        nonlocal posts
        posts += request.method == "POST"
        await asyncio.sleep(30)
        return web.Response()

    async with daemon(socket_path, hang):
        api = api_of(socket_path)
        assert (await api.post("/restart", read_timeout=0.2)).status is Status.TIMED_OUT
        assert not api.health.up
        assert (await api.get("/json", read_timeout=0.2)).status is Status.TIMED_OUT
        assert (await api.negotiate()).ok
        assert api.health.up
        api.close()
    assert posts == 1, "never sent again"


async def test_a_connection_cut_in_the_middle_of_a_post_is_ambiguous(socket_path: Path) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async with daemon(socket_path, cut) as seen:
        api = api_of(socket_path)
        assert (await api.post("/restart", read_timeout=5)).status is Status.TIMED_OUT
        assert (await api.get("/json")).status is Status.UNAVAILABLE
        api.close()
    assert sum("restart" in line for line in seen) == 1


async def test_endless_and_dripping_bodies_end(socket_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_api, "_BODY_LIMIT", 200_000)
    monkeypatch.setattr(docker_api, "SLACK", 0.0)
    monkeypatch.setattr(docker_api, "CONNECT_TIMEOUT", 0.2)

    async def pour(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        size = 1 if request.path.endswith("drip") else 100_000
        for _ in range(5 if request.path.endswith("log") else 1000):
            await response.write(b"x" * size)
            await asyncio.sleep(0.01)
        return response

    async with daemon(socket_path, pour):
        api = api_of(socket_path)
        flood = await api.get("/flood", read_timeout=5)
        assert flood.status is Status.REFUSED
        assert "larger than" in flood.detail
        assert len((await api.get("/log", tail_bytes=100, read_timeout=5)).get().body) == 100
        assert (await api.get("/drip", read_timeout=0.3)).status is Status.TIMED_OUT
        api.close()


async def test_a_proxys_word_spares_the_warning_about_plain_tcp(socket_path: Path) -> None:
    for headers, warned in (({}, True), ({PROXY_HEADER: "1"}, False)):

        async def version(_: web.Request, headers: dict[str, str] = headers) -> web.StreamResponse:
            return web.json_response(VERSION, headers=headers)

        app = web.Application()
        app.router.add_get("/version", version)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        rt = DockerRuntime(DockerHost("tcp", f"tcp://127.0.0.1:{port}"))
        info = (await rt.ping()).get()
        assert any("without TLS" in w for w in info.warnings) is warned
        await rt.close()
        await runner.cleanup()


async def test_a_clock_that_differs_is_warned_about(socket_path: Path) -> None:
    async with daemon(socket_path):
        rt = DockerRuntime(DockerHost("local", f"unix://{socket_path}"), wall=lambda: 1000.0)
        info = (await rt.ping()).get()
        await rt.close()
    assert info.clock_skew is not None
    assert info.clock_skew > 1e9
    assert any("the clock of Docker host local differs" in w for w in info.warnings)


# --- TLS


def certificates(folder: Path) -> None:
    """A CA, a server's and a client's certificate, as Docker's documentation makes them."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    new = ("req", "-newkey", "rsa:2048", "-nodes")
    usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    openssl(*new, "-x509", "-keyout", "ca-key.pem", "-out", "ca.pem", "-days", "2", "-subj", "/CN=ca", *usage)
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    signed = ("-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial", "-days", "2", "-extfile", "names")
    for name in ("server", "client"):
        openssl(*new, "-keyout", f"{name}-key.pem", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)


async def test_tls_both_sides_prove_who_they_are(tmp_path: Path) -> None:
    await asyncio.to_thread(certificates, tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server-key.pem")
    context.load_verify_locations(tmp_path / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED

    async def version(request: web.Request) -> web.StreamResponse:
        return web.json_response(VERSION)

    app = web.Application()
    app.router.add_get("/version", version)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    url = f"tcp://127.0.0.1:{runner.addresses[0][1]}"
    ca, cert, key = (str(tmp_path / f) for f in ("ca.pem", "client.pem", "client-key.pem"))
    good = DockerRuntime(DockerHost("tls", url, ca_file=ca, cert_file=cert, key_file=key))
    info = (await good.ping()).get()
    assert not info.warnings
    stranger = DockerRuntime(DockerHost("nocert", url, ca_file=ca))
    assert (await stranger.ping()).status is Status.UNAVAILABLE
    wrong_ca = DockerRuntime(DockerHost("wrongca", url, ca_file=cert, cert_file=cert, key_file=key))
    outcome = await wrong_ca.ping()
    assert outcome.status is Status.UNAVAILABLE
    assert not wrong_ca.health.up
    (tmp_path / "client.pem").write_bytes((tmp_path / "server.pem").read_bytes())
    os.utime(tmp_path / "client.pem", (1, 1))
    mismatched = await good.ping()
    assert mismatched.status is Status.UNAVAILABLE, "a renewed certificate is read, and this one has another key"
    for rt in (good, stranger, wrong_ca):
        await rt.close()
    await runner.cleanup()
