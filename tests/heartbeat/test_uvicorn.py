"""Real uvicorn and FastAPI: the block seen from outside, the drain, the failed load, several workers."""

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from heartbeat.heartbeat_lab import Answer, Server, request, server, until, uvicorn
from llm_heartbeat.settings import Settings


def in_background(target: Server, path: str) -> tuple[threading.Thread, list[Answer]]:
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(target.get(path, timeout=60)), daemon=True)
    thread.start()
    return thread, answers


def test_a_blocked_loop_is_seen_named_and_forgiven(tmp_path: Path) -> None:
    with server(uvicorn(), tmp_path, LLM_HEARTBEAT_LIVE_AFTER="1500ms") as app:
        assert app.aside("/healthz/live").status == 200
        with app.blocked() as answers:
            until("lag above 2.5 s meanwhile", lambda: app.metrics().get("llm_event_loop_lag_seconds", 0) > 2.5)
            live = until("live is off", lambda: (a := app.aside("/healthz/live")).status == 503 and a)
            assert not answers
            assert live.json["failed"] == ["event_loop_stuck"]
            assert live.json["checks"]["event_loop_lag_ms"] > 2500
            assert live.json["checks"]["blocked_seconds"] > 2.5
            culprit = live.json["culprit"]
            assert (culprit["function"], Path(culprit["file"]).name) == ("make.<locals>.block", "heartbeat_apps.py")
            until("the gauge agrees", lambda: app.metrics()["llm_health_live"] == 0)
        until("live again", lambda: app.aside("/healthz/live").status == 200)
        assert app.get("/healthz/live").json["checks"]["event_loop_lag_ms"] > 2500
        until("the metric agrees", lambda: app.metrics()["llm_event_loop_blocked_seconds"] == 0)
        by_function = 'llm_event_loop_blocked_by_total{function="heartbeat_apps.make.<locals>.block"}'
        assert app.metrics()[by_function] == 1
        assert app.text().count("blocked in make.<locals>.block") == 2  # while, and when it ended


def test_a_c_call_that_holds_the_gil_is_seen_only_afterwards(tmp_path: Path) -> None:
    """Nothing of Python runs meanwhile, the side port neither; the block is counted once it is over."""
    with server(uvicorn(), tmp_path) as app:
        length = 24
        while True:  # the machine decides how long a backtrack takes
            began = time.monotonic()
            app.get(f"/gil?length={length}", timeout=60)
            if time.monotonic() - began > 1.5:
                break
            length += 1
        until("the block is counted", lambda: app.metrics().get("llm_event_loop_blocked_total", 0) >= 1)
        assert app.metrics()["llm_event_loop_lag_seconds"] > 1.3
        assert app.aside("/healthz/live").status == 200


def test_endpoints_on_the_main_port(tmp_path: Path) -> None:
    with server(uvicorn("--root-path", "/llm"), tmp_path) as app:
        for name in ("startup", "live", "ready"):
            got = app.get(f"/healthz/{name}")
            head = app.get(f"/healthz/{name}", method="HEAD")
            assert got.status == head.status == 200
            assert got.headers["cache-control"] == head.headers["cache-control"] == "no-store"
            assert got.headers["content-type"].startswith("application/json")
            assert {"status", "checks", "failed", "details"} <= set(got.json)
            assert head.body == b""
            assert int(head.headers["content-length"]) > 50
            assert app.get(f"/healthz/{name}?verbose").body.decode().endswith(f"{name} check passed\n")
            post = app.get(f"/healthz/{name}", method="POST")
            assert (post.status, post.headers["allow"]) == (405, "GET, HEAD")
        assert app.get("/healthz/").status == 404
        assert app.get("/healthz/live/x").status == 404
        assert app.get("/").json["pid"] == app.process.pid
        for nothing in ("/nothing", "/healthzlive", "/healthz/live/", "/healthz"):
            assert app.aside(nothing).status == app.get(nothing).status == 404
        post = app.aside("/healthz/live", method="POST")
        assert (post.status, post.headers["allow"]) == (405, "GET, HEAD")
        assert app.aside("/healthz/live", method="HEAD").body == b""
        assert app.aside("/").body.startswith(b"llm_heartbeat: ")


def raw(port: int, path: str) -> bytes:
    """All bytes that the server sends, framing included; the date is the clock's."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        received = b""
        while part := connection.recv(65536):
            received += part
    return b"\r\n".join(line for line in received.split(b"\r\n") if not line.lower().startswith(b"date:"))


def test_streams_are_unchanged_byte_for_byte(tmp_path: Path) -> None:
    with server(uvicorn(), tmp_path) as with_heartbeat, server(uvicorn(app="heartbeat_apps:plain"), tmp_path, "/") as plain:
        for path in ("/stream", "/stream?pause=0.001", "/nothing", "/openapi.json", "/gil?length=x"):
            ours, theirs = raw(with_heartbeat.port, path), raw(plain.port, path)
            assert ours == theirs
            assert ours.startswith(b"HTTP/1.1 ")


def test_sigterm_turns_ready_off_at_once_and_the_long_stream_ends_whole(tmp_path: Path) -> None:
    with server(uvicorn(), tmp_path) as app:
        thread, answers = in_background(app, "/stream?pause=0.1&chunks=30")
        until("the stream is in flight", lambda: app.aside("/healthz/ready").json["checks"]["inflight"] == 1)
        app.terminate()
        ready = until("ready is off", lambda: (a := app.aside("/healthz/ready")).status == 503 and a)
        assert (ready.json["failed"], ready.json["reason"]) == (["draining"], "SIGTERM")
        assert ready.json["checks"]["inflight"] == 1
        assert app.aside("/healthz/live").status == 200
        thread.join(30)
        assert len(answers[0].body) == 30_000
        assert app.process.wait(10) in (0, -signal.SIGTERM)
        assert "lifespan ends" in app.text()
        assert "ready: ok -> failed: SIGTERM" in app.text()


def test_a_server_without_requests_ends_at_once_and_still_says_why_it_left(tmp_path: Path) -> None:
    with server(uvicorn(), tmp_path) as app:
        app.terminate()
        app.process.wait(10)
        assert "ready: ok -> failed: SIGTERM" in app.text()


def test_the_server_may_be_told_later_so_that_load_balancers_notice(tmp_path: Path) -> None:
    with server(uvicorn(), tmp_path, LLM_HEARTBEAT_DRAIN_DELAY="2s") as app:
        app.terminate()
        began = time.monotonic()
        until("ready is off on the main port, which still accepts", lambda: app.get("/healthz/ready").status == 503)
        assert app.get("/").status == 200
        assert app.process.wait(15) in (0, -signal.SIGTERM)
        assert time.monotonic() - began > 1.8


def test_a_second_sigterm_does_not_wait(tmp_path: Path) -> None:
    with server(uvicorn(), tmp_path, LLM_HEARTBEAT_DRAIN_DELAY="1h") as app:
        app.terminate()
        until("ready is off", lambda: app.get("/healthz/ready").status == 503)
        app.terminate()
        assert app.process.wait(15) in (0, -signal.SIGTERM)


def test_an_endless_stream_is_ended_at_the_limit(tmp_path: Path) -> None:
    with server(uvicorn(), tmp_path, LLM_HEARTBEAT_DRAIN_LIMIT="1s") as app:
        connection = socket.create_connection(("127.0.0.1", app.port))
        connection.sendall(b"GET /stream?pause=0.1&chunks=100000 HTTP/1.1\r\nHost: x\r\n\r\n")
        until("the stream is in flight", lambda: app.aside("/healthz/ready").json["checks"]["inflight"] == 1)
        app.terminate()
        assert app.process.wait(20) in (0, -signal.SIGTERM)
        connection.close()
        assert "draining took over 1 s: 1 requests are cancelled" in app.text()


def test_a_failed_load_is_500_at_once(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with server(uvicorn(), tmp_path, APP_LOAD="in-background", APP_GATE=str(gate)) as app:
        for endpoint in ("startup", "ready"):
            assert app.get(f"/healthz/{endpoint}").json["failed"] == ["model_loading"]
            assert app.get(f"/healthz/{endpoint}").status == 503
        gate.touch()
        failed = until("500", lambda: (a := app.get("/healthz/startup")).status == 500 and a)
        assert failed.json["failed"] == ["load_failed"]
        assert failed.json["reason"] == "weights/model-00001.safetensors is truncated"
        assert app.aside("/healthz/startup").status == app.aside("/healthz/ready").status == 500
        assert app.get("/healthz/live").status == 200
        assert app.process.poll() is None


def test_a_failed_load_ends_the_process_if_asked_to(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with server(
        uvicorn(), tmp_path, APP_LOAD="in-background", APP_GATE=str(gate), LLM_HEARTBEAT_EXIT_ON_FAILED_LOAD="1"
    ) as app:
        gate.touch()
        assert app.process.wait(15) == 1
        assert "exit 1: weights/model-00001.safetensors is truncated" in app.text()


def test_a_start_that_fails_in_the_lifespan_stays_uvicorns_affair(tmp_path: Path) -> None:
    with server(uvicorn(), tmp_path, ready=None, APP_LOAD="fails-in-lifespan") as app:
        assert app.process.wait(20) == 3
        assert "startup: loading -> failed: MemoryError: CUDA out of memory\n" in app.text(), "uvicorn logs the traceback"


@pytest.mark.parametrize("lifespan", ["off", "on", "auto"])
def test_with_and_without_lifespan(tmp_path: Path, lifespan: str) -> None:
    with server(uvicorn("--lifespan", lifespan), tmp_path) as app:
        assert app.get("/healthz/ready").status == 200
        assert app.aside("/healthz/live").status == 200
        assert ("lifespan begins" in app.text()) == (lifespan != "off")


def test_wrong_options_and_a_taken_port_do_not_stop_the_server(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        wrong = {"LLM_HEARTBEAT_HOLD": "soon", "LLM_HEARTBEAT_LIFE": "1", "LLM_HEARTBEAT_DEPENDENCIES": "db=ftp://x"}
        with server(uvicorn(), tmp_path, LLM_HEARTBEAT_LISTEN=listen, **wrong) as app:
            assert app.get("/healthz/ready").status == 200
            until("the port's state is logged", lambda: "cannot listen" in app.text())
            text = app.text()
            assert text.count("LLM_HEARTBEAT_HOLD: 'soon' is not a duration") == 1
            assert "LLM_HEARTBEAT_LIFE: no such option" in text
            assert "LLM_HEARTBEAT_DEPENDENCIES: db: 'ftp://x' is neither tcp://host:port nor http://host/path" in text
            assert text.count(f"cannot listen on {listen}") == 1
            taken.close()
            port = int(listen.rpartition(":")[2])
            until("it takes the port once it is free", lambda: request(port, "/healthz/live").status == 200)


def test_a_range_of_ports_takes_the_first_that_is_free(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        first = taken.getsockname()[1]
        with server(uvicorn(), tmp_path, LLM_HEARTBEAT_LISTEN=f"127.0.0.1:{first}-{first + 20}") as app:

            def found() -> int:
                for port in range(first + 1, first + 21):
                    try:
                        if request(port, "/healthz/live").json["checks"]["event_loop"] == "turning":
                            return port
                    except (OSError, ValueError, KeyError):
                        continue
                return 0

            assert until("the side port", found) > first
            assert app.get("/").status == 200


def test_several_workers_share_one_side_port_and_the_worst_speaks(tmp_path: Path) -> None:
    shared = tmp_path / "multiproc"
    shared.mkdir()
    options = {"PROMETHEUS_MULTIPROC_DIR": str(shared), "LLM_HEARTBEAT_LIVE_AFTER": "1500ms"}
    with server(uvicorn("--workers", "3"), tmp_path, **options) as app:
        pids = until(
            "three workers are known",
            lambda: len(p := {int(f.stem.split("_")[2]) for f in shared.glob("llm_heartbeat_*.json")}) == 3 and p,
            60,
        )
        ready = app.aside("/healthz/ready")
        assert ready.status == 200
        assert len(ready.json["processes"]) == 2
        # A block in any of them is seen at the one side port, whoever holds it.
        with app.blocked() as answers:
            stuck = until("live is 503", lambda: (a := app.aside("/healthz/live")).status == 503 and a)
            assert stuck.json["failed"] == ["event_loop_stuck"]
            until("the culprit of the other process", lambda: app.aside("/healthz/live").json["culprit"])
            assert app.aside("/healthz/ready").status == 200, "two others serve"
            # No pid label: the largest, or least, of all processes.
            until("the gauge of the blocked one", lambda: app.metrics()["llm_health_live"] == 0)
            assert app.metrics()["llm_event_loop_lag_seconds"] > 1.5
        until("live again", lambda: app.aside("/healthz/live").status == 200)
        blocked = json.loads(answers[0].body)["pid"]
        # A dead process neither answers nor keeps its gauges.
        assert blocked in pids
        os.kill(blocked, signal.SIGKILL)
        until(
            "its gauges are gone",
            lambda: app.aside("/healthz/live").status == 200 and not list(shared.glob(f"gauge_live*_{blocked}.db")),
            30,
        )
        until("lag is small again", lambda: app.metrics()["llm_event_loop_lag_seconds"] < Settings().blocked_after, 30)
