"""The other ways in, and the programs that the docs show, each run for real."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import threading
from pathlib import Path

import pytest

from heartbeat.heartbeat_lab import Server, server, until
from llm_heartbeat.process import start_ticks

DOCS = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "heartbeat.md"

AIOHTTP = """
import asyncio, os, time
from aiohttp import web
from llm_heartbeat import aiohttp_app

class OutOfMemoryError(RuntimeError):
    pass

@web.middleware
async def with_a_key_only(request, handler):
    if "key" not in request.query:
        raise web.HTTPUnauthorized
    return await handler(request)

async def exhaust(request):
    raise OutOfMemoryError

async def block(request):
    while not os.path.exists(request.query["gate"]):
        time.sleep(0.02)
    return web.Response(text="done")

async def stream(request):
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(int(request.query["chunks"])):
        await response.write(b"x" * 100)
        await asyncio.sleep(0.1)
    return response

app = web.Application(middlewares=[with_a_key_only])
app.router.add_get("/block", block)
app.router.add_get("/stream", stream)
app.router.add_get("/exhaust", exhaust)
aiohttp_app.setup(app)
web.run_app(app, host="127.0.0.1", port=int(os.environ["PORT"]), print=None)
"""

FORKED = """
import os, time, asyncio, warnings
import llm_heartbeat
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of fork beside threads; vLLM does it all the same

async def main():
    async with llm_heartbeat.running():
        if os.environ.get("FORK") == "1":
            pid = os.fork()
            if pid == 0:
                print("child", os.getpid(), flush=True)  # from here on Python has signals again
                time.sleep(60)
                os._exit(0)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_aiohttp_endpoints_block_and_drain(tmp_path: Path) -> None:
    program = tmp_path / "app.py"
    program.write_text(AIOHTTP)
    with server([str(program)], tmp_path, LLM_HEARTBEAT_LIVE_AFTER="1s") as app:
        assert app.get("/healthz/ready").headers["cache-control"] == "no-store"
        assert app.get("/healthz/ready", method="HEAD").body == b""
        assert app.get("/healthz/other?key").status == 404
        assert app.get("/block").status == 401, "everything else needs the key"
        post = app.get("/healthz/ready", method="POST")
        assert (post.status, post.headers["allow"]) == (405, "GET, HEAD")
        assert app.get("/healthz/live?verbose").body.decode().endswith("live check passed\n")
        with app.blocked("&key"):
            stuck = until("stuck", lambda: (a := app.aside("/healthz/live")).status == 503 and a)
            assert stuck.json["culprit"]["function"] == "block"
        until("live again", lambda: app.aside("/healthz/live").status == 200)
        bodies: list[bytes] = []
        stream = threading.Thread(target=lambda: bodies.append(app.get("/stream?key&chunks=20", timeout=30).body))
        stream.start()
        until("in flight", lambda: app.aside("/healthz/ready").json["checks"]["inflight"] == 1)
        app.terminate()
        draining = until("draining", lambda: (a := app.aside("/healthz/ready")).status == 503 and a)
        assert draining.json["failed"] == ["draining"]
        stream.join()
        assert bodies == [b"x" * 2000]
        assert app.process.wait(15) in (0, -signal.SIGTERM, 128 + signal.SIGTERM)


def test_aiohttp_out_of_memory_and_drain_limit(tmp_path: Path) -> None:
    program = tmp_path / "app.py"
    program.write_text(AIOHTTP)
    with server([str(program)], tmp_path, LLM_HEARTBEAT_REWARM_AFTER_OOM="1", LLM_HEARTBEAT_DRAIN_LIMIT="1s") as app:
        assert app.get("/healthz/ready").status == 200
        assert app.get("/exhaust?key").status == 500
        assert app.get("/healthz/ready").json["failed"] == ["warming_up"]
        endless = threading.Thread(target=lambda: cut_off(app), daemon=True)
        endless.start()
        until("in flight", lambda: app.aside("/healthz/ready").json["checks"]["inflight"] == 1)
        app.terminate()
        assert app.process.wait(20) in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
        assert "draining took over 1 s: 1 requests are cancelled" in app.text()
        endless.join()


def cut_off(app: Server) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        app.get("/stream?key&chunks=1000000", timeout=60)


def test_a_forked_child_ends_at_sigterm_though_its_parent_would_wait(tmp_path: Path) -> None:
    program = tmp_path / "app.py"
    program.write_text(FORKED)
    with server([str(program)], tmp_path, ready=None, FORK="1", LLM_HEARTBEAT_DRAIN_DELAY="1h") as app:
        until("the child is there", lambda: "child" in app.text())
        child = int(app.text().split("child")[1].split()[0])
        os.kill(child, signal.SIGTERM)
        until("the child ends", lambda: start_ticks(child) is None)
        assert app.aside("/healthz/ready").status == 200, "the parent was not asked to end"


def test_a_forked_child_does_not_keep_the_port(tmp_path: Path) -> None:
    """vLLM forks engine processes; one that outlives its API server must not hold the probe port."""
    program = tmp_path / "app.py"
    program.write_text(FORKED)
    with server([str(program)], tmp_path, ready=None, FORK="1") as app:
        until("it answers", lambda: app.aside("/healthz/live").status == 200)
        until("the child is there", lambda: "child" in app.text())
        app.process.kill()
        app.process.wait()
        again = tmp_path / "again"
        again.mkdir()
        with server([str(program)], again, ready=None, LLM_HEARTBEAT_LISTEN=f"127.0.0.1:{app.side}") as second:
            second.side = app.side
            until("the next process has the port", lambda: second.aside("/healthz/live").status == 200)


def programs() -> dict[str, str]:
    """Code blocks of the docs that begin with a file's name."""
    blocks = re.findall(r"```python\n# (\w+\.py)[^\n]*\n(.*?)```", DOCS.read_text(), re.DOTALL)
    return dict(blocks)


def test_the_docs_show_all_three_ways_in() -> None:
    assert set(programs()) >= {"fastapi_app.py", "aiohttp_server.py", "plain_asyncio.py"}


@pytest.mark.parametrize(
    ("name", "command", "main_port"),
    [
        ("fastapi_app.py", ["-m", "uvicorn", "fastapi_app:app", "--port", "PORT"], True),
        ("aiohttp_server.py", ["aiohttp_server.py"], True),
        ("plain_asyncio.py", ["plain_asyncio.py"], False),
    ],
)
def test_the_programs_in_the_docs_run(tmp_path: Path, name: str, command: list[str], main_port: bool) -> None:
    (tmp_path / name).write_text(programs()[name])
    command = [str(tmp_path / word) if word == name else word for word in command]
    command = [*command[:2], "--app-dir", str(tmp_path), *command[2:]] if "uvicorn" in command else command
    with server(command, tmp_path, ready=None) as app:
        until(f"ready\n{app.text()}", lambda: app.aside("/healthz/ready").status == 200)
        changes = [
            change["to"] for change in app.aside("/healthz/startup").json["changes"] if change["endpoint"] == "startup"
        ]
        assert changes == ["ready"], "loading until it is loaded, and never ready before"
        if main_port:
            assert app.get("/healthz/ready").json["status"] == "ok"
        app.terminate()
        app.process.wait(15)
