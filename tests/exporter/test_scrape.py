"""The HTTP client against servers on their worst day: each ends in an answer with a kind and words."""

import asyncio
import errno
import gzip
import resource
import socket
import ssl
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from exporter import hostile
from llm_exporter.engines.base import Page
from llm_exporter.fetch_errors import classify
from llm_exporter.resolver import EveryAddressResolver
from llm_exporter.scrape import Access, Scraper
from loopback import free_port, self_signed

GZIP = "Content-Encoding: gzip\r\n"


@pytest.fixture
async def scraper() -> AsyncIterator[Scraper]:
    scraper = Scraper()
    yield scraper
    await scraper.close()


async def get(scraper: Scraper, base: str, timeout: float = 5.0, **access: object) -> Page:
    return await scraper.request("GET", Access(base, **access), "/metrics", timeout)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "behaviour, kind, words",
    [
        (hostile.silent, "timeout", "no answer in time"),
        (hostile.drips, "timeout", "no answer in time"),
        (hostile.resets, "reset", "closed before an answer"),
        (hostile.hangs_up, "reset", "closed before an answer"),
        (hostile.truncates, "reset", "in the middle"),
        (hostile.floods, "other", "larger than 16 MiB"),
        (hostile.says(gzip.compress(b"#" * 10_000_000), GZIP), "other", "expands more than 200 times"),
        (hostile.says(b"not gzip", GZIP), "other", "gzip body is broken"),
        (hostile.says(gzip.compress(b"x 1\n")[:-6], GZIP), "other", "ends early"),
        (hostile.says(b"x", "Content-Encoding: br\r\n"), "other", "'br' was not asked for"),
        (hostile.says(b"x", "Content-Length: 9\r\n"), "other", "does not speak HTTP"),
    ],
)  # fmt: skip
async def test_a_hostile_answer_ends_in_a_kind_and_words(
    scraper: Scraper, behaviour: hostile.Behaviour, kind: str, words: str
) -> None:
    async with hostile.raw_server(behaviour) as base:
        answer = await get(scraper, base, 0.5 if kind == "timeout" else 20.0)
    assert (answer.status, answer.kind) == (None, kind)
    assert answer.error is not None
    assert words in answer.error


async def test_what_does_not_speak_http_is_said(scraper: Scraper) -> None:
    async def ssh(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await writer.drain()

    async with hostile.raw_server(ssh) as base:
        answer = await get(scraper, base)
    assert answer.kind == "other"
    assert answer.error is not None
    assert "does not speak HTTP" in answer.error
    assert "\n" not in answer.error


async def test_a_bomb_never_takes_the_memory_it_wants(scraper: Scraper) -> None:
    bomb = gzip.compress(b"\0" * 1_000_000_000, 9)
    tracemalloc.start()
    try:
        async with hostile.raw_server(hostile.says(bomb, GZIP)) as base:
            answer = await get(scraper, base, 20.0)
        assert answer.kind == "other"
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("members", [1, 3])
async def test_an_honest_gzip_page_is_read_whole(scraper: Scraper, members: int) -> None:
    page = b"".join(b'vllm:num_requests_running{engine="%d"} %d.0\n' % (n, n) for n in range(20_000))
    size = len(page) // members + 1
    body = b"".join(gzip.compress(page[at : at + size]) for at in range(0, len(page), size))
    async with hostile.raw_server(hostile.says(body, GZIP)) as base:
        answer = await get(scraper, base)
    assert answer.body.encode() == page


@pytest.mark.parametrize("status", [204, 301, 302, 401, 403, 404, 500, 501, 503])
async def test_any_http_answer_is_an_answer_and_redirects_are_not_followed(scraper: Scraper, status: int) -> None:
    asked = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(status=status, headers={"Location": "/metrics"} if status in (301, 302) else {})

    app = web.Application()
    app.router.add_get("/metrics", answer)
    async with TestServer(app) as server:
        result = await get(scraper, str(server.make_url("")).rstrip("/"))
    assert (result.status, result.error, asked) == (status, None, 1)
    if status == 301:
        assert result.headers["Location"] == "/metrics"


async def test_bytes_that_are_not_utf8_do_not_break_the_reading(scraper: Scraper) -> None:
    async with hostile.raw_server(hostile.says(b'x{a="\xff"} 1\n', "Content-Type: image/png\r\n")) as base:
        answer = await get(scraper, base)
    assert (answer.status, answer.ctype, answer.body) == (200, "image/png", 'x{a="�"} 1\n')


async def test_a_refused_port_is_refused_and_names_the_address(scraper: Scraper) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    answer = await get(scraper, f"http://127.0.0.1:{port}")
    assert (answer.kind, answer.error) == ("refused", f"127.0.0.1 port {port}: refused")


async def test_localhost_reaches_a_server_on_either_family_only(scraper: Scraper) -> None:
    for host in ("127.0.0.1", "::1"):
        async with hostile.raw_server(hostile.says(b"x 1\n"), host) as base:
            answer = await get(scraper, "http://localhost:" + base.rpartition(":")[2])
            assert answer.body == "x 1\n"
            assert (await get(scraper, base)).body == "x 1\n"


async def test_every_address_that_failed_is_named(scraper: Scraper) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    answer = await get(scraper, f"http://localhost:{port}")
    assert answer.kind == "refused"
    assert answer.error is not None
    assert f"127.0.0.1 port {port}: refused" in answer.error
    if socket.has_dualstack_ipv6():
        assert f"::1 port {port}: refused" in answer.error


async def test_a_name_that_does_not_resolve_is_dns(scraper: Scraper) -> None:
    answer = await get(scraper, "http://no-such-host.invalid:8000")
    assert answer.kind == "dns"
    assert answer.error is not None
    assert answer.error.startswith("the host name cannot be resolved: ")
    assert "Cannot connect" not in answer.error


async def test_a_name_is_asked_for_anew_after_a_failure_only(scraper: Scraper, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    resolve = EveryAddressResolver.resolve

    async def counted(self: EveryAddressResolver, host: str, *rest: Any, **more: Any) -> Any:
        asked.append(host)
        return await resolve(self, host, *rest, **more)

    monkeypatch.setattr(EveryAddressResolver, "resolve", counted)
    nobody = f"http://localhost:{free_port()}"
    for count in (1, 2):
        assert (await get(scraper, nobody)).kind == "refused"
        assert len(asked) == count
    # It closes every connection, so that each request needs a new one, and an address for it.
    async with hostile.raw_server(hostile.says(b"x 1\n", "Connection: close\r\n")) as base:
        for _ in range(3):
            assert (await get(scraper, base.replace("127.0.0.1", "localhost"))).status == 200
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (OSError(errno.EHOSTUNREACH, "No route to host"), "noroute", "no route"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "noroute", "no route"),
        (OSError(errno.ETIMEDOUT, "Connection timed out"), "timeout", "no answer in time"),
        (OSError(errno.EPIPE, "Broken pipe"), "reset", "the connection was reset"),
        (OSError(errno.EMFILE, "Too many open files"), "other", "Too many open files"),
        (
            OSError(
                "Multiple exceptions: [Errno 113] Connect call failed ('10.0.0.1', 8000), "
                "[Errno 111] Connect call failed ('::1', 8000, 0, 0)"
            ),
            "refused",  # it comes from a live host
            "10.0.0.1 port 8000: no route and ::1 port 8000: refused",
        ),
    ],
)
def test_what_the_system_says_is_a_kind_and_names_the_addresses(error: OSError, kind: str, words: str) -> None:
    assert classify(error) == (kind, words)


async def test_plain_http_behind_an_https_url_is_tls(scraper: Scraper) -> None:
    app = web.Application()
    app.router.add_get("/metrics", _page)
    async with TestServer(app) as server:
        answer = await get(scraper, str(server.make_url("")).rstrip("/").replace("http:", "https:"))
    assert answer.kind == "tls"
    assert answer.error is not None
    assert answer.error.endswith("is this an https server?")


async def test_certificates_are_checked_unless_told_otherwise(scraper: Scraper, tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    app = web.Application()
    app.router.add_get("/metrics", _page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    base = f"https://127.0.0.1:{runner.addresses[0][1]}"
    try:
        unknown = await get(scraper, base)
        assert (unknown.kind, unknown.status) == ("tls", None)
        assert unknown.error is not None
        assert "certificate is not accepted" in unknown.error
        assert (await get(scraper, base, ca_file=str(cert))).status == 200
        assert (await get(scraper, base, insecure_skip_verify=True)).status == 200
    finally:
        await runner.cleanup()


async def _page(request: web.Request) -> web.Response:
    return web.Response(text="x 1\n")


async def test_the_token_comes_from_its_file_at_every_request(scraper: Scraper, tmp_path: Path) -> None:
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        assert request.headers["Accept-Encoding"] == "identity"
        assert "text/plain;version=0.0.4" in request.headers["Accept"]
        assert request.headers["User-Agent"].startswith("stuckproof/")
        return web.Response()

    app = web.Application()
    app.router.add_get("/metrics", answer)
    token = tmp_path / "token"
    async with TestServer(app) as server:
        base = str(server.make_url("")).rstrip("/")
        for secret in ("one", "two"):
            token.write_text(secret + "\n")
            await get(scraper, base, bearer_token_file=str(token))
        token.unlink()
        gone = await get(scraper, base, bearer_token_file=str(token))
    assert seen == ["Bearer one", "Bearer two"]
    assert gone.kind == "other"
    assert gone.error is not None
    assert "cannot be read" in gone.error


async def test_a_connection_is_used_again(scraper: Scraper) -> None:
    peers: set[object] = set()

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response(text="x 1\n")

    app = web.Application()
    app.router.add_get("/metrics", answer)
    async with TestServer(app) as server:
        for _ in range(5):
            await get(scraper, str(server.make_url("")).rstrip("/"))
    assert len(peers) == 1


async def test_the_bound_per_host_holds_and_waiting_is_no_timeout() -> None:
    running = most = 0

    async def slow(request: web.Request) -> web.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1
        return web.Response(text="x 1\n")

    app = web.Application()
    app.router.add_get("/metrics", slow)
    scraper = Scraper(per_host=3)
    async with TestServer(app) as server:
        base = str(server.make_url("")).rstrip("/")
        answers = await asyncio.gather(*(get(scraper, base, 0.3) for _ in range(30)))
    await scraper.close()
    assert most == 3
    assert {answer.status for answer in answers} == {200}


async def test_failed_requests_leave_no_socket_and_no_task_behind(scraper: Scraper) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async with (
        hostile.raw_server(hostile.silent) as silent,
        hostile.raw_server(hostile.floods) as floods,
        hostile.raw_server(hostile.truncates) as truncates,
    ):
        await asyncio.gather(get(scraper, silent, 0.05), get(scraper, truncates, 0.5))
        await asyncio.sleep(0.1)
        before, tasks = open_files(), len(asyncio.all_tasks())
        for _ in range(10):
            await asyncio.gather(get(scraper, silent, 0.05), get(scraper, floods, 0.05), get(scraper, truncates, 0.5))
        deadline = asyncio.get_running_loop().time() + 5
        while open_files() > before or len(asyncio.all_tasks()) > tasks:
            assert asyncio.get_running_loop().time() < deadline, (
                open_files(),
                before,
                len(asyncio.all_tasks()),
                tasks,
            )
            await asyncio.sleep(0.05)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > before
