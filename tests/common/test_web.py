"""The web server: addresses, credentials, TLS; the two health paths stay open."""

import asyncio
import base64
import logging
import socket
import ssl
from pathlib import Path

import aiohttp
import bcrypt
import pytest
from aiohttp import web

from llm_common.errors import ConfigError
from llm_common.listen import is_loopback, parse_listen
from llm_common.web import serve
from llm_common.web_config import WebConfig
from loopback import free_port, self_signed


def application() -> web.Application:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="here")

    app = web.Application()
    for path in ("/", "/-/healthy", "/-/ready"):
        app.router.add_get(path, answer)
    return app


@pytest.mark.parametrize(
    "address, expected",
    [
        (":10140", ("", 10140)),
        ("127.0.0.1:1", ("127.0.0.1", 1)),
        ("[::1]:80", ("::1", 80)),
        ("host:0", ("host", 0)),
    ],
)
def test_listen_addresses(address: str, expected: tuple[str, int]) -> None:
    assert parse_listen(address) == expected


@pytest.mark.parametrize("address", ["10140", "a:b", "::1:80", "x:99999", "", ":"])
def test_wrong_listen_addresses_say_how_to_write_one(address: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        parse_listen(address)


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        (":1", False),
        ("0.0.0.0:1", False),
        ("10.0.0.1:1", False),
        ("h:1", False),
    ],
)
def test_loopback_is_recognised(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


async def test_a_bearer_token_guards_all_but_the_health_paths_and_may_change(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    config = tmp_path / "web.yml"
    config.write_text(f"bearer_token_file: {token}\n")
    port = free_port()
    runner = await serve(application(), [f"127.0.0.1:{port}"], str(config))
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

            async def status(path: str, header: str = "") -> int:
                async with session.get(path, headers={"Authorization": header} if header else {}) as response:
                    return response.status

            assert await status("/") == 401
            assert await status("/", "Bearer two") == 401
            assert await status("/", "Basic b25lOnR3bw==") == 401
            async with session.get("/") as refused:
                # One challenge a line: Chromium reads the first word of each, and asks for a password only at `Basic`.
                assert refused.headers.getall("WWW-Authenticate") == ['Basic realm="stuckproof"', "Bearer"]
            assert await status("/", "Bearer one") == 200
            # A browser knows no bearer tokens: it asks for user (anything) and password, kim:one.
            assert await status("/", "Basic a2ltOm9uZQ==") == 200
            assert await status("/", "Basic one") == 401
            assert await status("/-/healthy") == 200
            assert await status("/-/ready") == 200
            token.write_text("two")
            assert await status("/", "Bearer one") == 401
            assert await status("/", "Basic a2ltOm9uZQ==") == 401
            assert await status("/", "Bearer two") == 200
            token.unlink()
            assert await status("/", "Bearer two") == 401
            assert await status("/", "Basic a2ltOnR3bw==") == 401
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    "header", [b"Bearer \xff", b"Basic \xff", b"Basic !", b"Basic " + base64.b64encode(b"\xff:x"), b"x"]
)
async def test_credentials_that_are_no_text_are_wrong_and_no_error(tmp_path: Path, header: bytes) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    config = tmp_path / "web.yml"
    config.write_text(f"bearer_token_file: {token}\n")
    port = free_port()
    runner = await serve(application(), [f"127.0.0.1:{port}"], str(config))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: " + header + b"\r\nConnection: close\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"401"
        writer.close()
        await writer.wait_closed()
    finally:
        await runner.cleanup()


async def test_users_come_in_by_the_password_whose_hash_is_in_the_web_config(tmp_path: Path) -> None:
    hashed = bcrypt.hashpw("café:1".encode(), bcrypt.gensalt(4)).decode()
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users: {{kim: '{hashed}'}}\n")
    port = free_port()
    runner = await serve(application(), [f"127.0.0.1:{port}"], str(config))
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            for user, password, expected in (
                ("kim", "café:1", 200),
                ("kim", "café:1", 200),
                ("kim", "cafe:1", 401),
                ("kim", "", 401),
                ("lee", "café:1", 401),
                ("kim", hashed, 401),
            ):
                told = base64.b64encode(f"{user}:{password}".encode()).decode()
                async with session.get("/", headers={"Authorization": f"Basic {told}"}) as response:
                    assert response.status == expected, (user, password)
            async with session.get("/") as response:
                assert response.status == 401
                assert "Basic" in response.headers["WWW-Authenticate"]
    finally:
        await runner.cleanup()


async def test_tls_is_served_and_a_renewed_certificate_is_taken_up(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path, "first")
    config = tmp_path / "web.yml"
    config.write_text(f"tls_server_config: {{cert_file: {cert}, key_file: {key}}}\n")
    port = free_port()
    runner = await serve(application(), [f"127.0.0.1:{port}"], str(config))

    async def subject() -> bool:
        context = ssl.create_default_context(cafile=str(cert))
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"https://127.0.0.1:{port}/", ssl=context) as response,
            ):
                return response.status == 200
        except aiohttp.ClientConnectorCertificateError:
            return False

    try:
        assert await subject()
        self_signed(tmp_path, "second")
        deadline = asyncio.get_running_loop().time() + 10
        while not await subject():
            assert asyncio.get_running_loop().time() < deadline
            # The renewal is noticed by a request, at most one look a second.
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"https://127.0.0.1:{port}/-/healthy", ssl=False) as response,
            ):
                assert response.status == 200
            await asyncio.sleep(0.2)
    finally:
        await runner.cleanup()


def test_a_wrong_web_config_lists_everything(tmp_path: Path) -> None:
    path = tmp_path / "web.yml"
    path.write_text(
        "tls_server_config: {cert_file: /none, client_auth_type: RequireAndVerifyClientCert,"
        " min_version: TLS9}\n"
        "basic_auth_users: {bob: hunter2}\nbearer_token_file: /none\nhttp_server_config: {}\n"
    )
    with pytest.raises(ConfigError) as caught:
        WebConfig.load(str(path))
    text = str(caught.value)
    for part in (
        "cert_file: /none is not a file",
        "min_version",
        "client_ca_file",
        "key_file belong together",
        "basic_auth_users.bob: must be a bcrypt hash",
        "bearer_token_file",
        "http_server_config: unknown key",
    ):
        assert part in text
    assert "hunter2" not in text


async def test_a_taken_port_is_said_and_nothing_stays_open() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            await serve(application(), [f"127.0.0.1:{port}"])


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["no host", "negative length", "endless path"],
)
async def test_broken_http_is_one_quiet_line_and_no_traceback(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    runner = await serve(application(), [f"127.0.0.1:{port}"])
    try:
        with caplog.at_level(logging.INFO):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            assert b" 400 " in await asyncio.wait_for(reader.readline(), 10)
            writer.close()
            await writer.wait_closed()
    finally:
        await runner.cleanup()
    (record,) = [r for r in caplog.records if r.name == "llm.web.server"]
    assert (record.levelname, record.exc_info) == ("INFO", None)
    assert "not HTTP" in record.getMessage()
