"""The sidecar's probes, run as the kubelet runs them: only a literal 503 of the exporter fails."""

from __future__ import annotations

import os
import re
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from loopback import free_port

SIDECAR = Path(__file__).parents[2] / "deploy" / "kubernetes" / "sidecar"
SCRIPT = yaml.safe_load((SIDECAR / "configmap.yaml").read_text())["data"]["probe.py"]
POD: dict[str, Any] = yaml.safe_load((SIDECAR / "deployment.yaml").read_text())["spec"]["template"]["spec"]
ENGINE: dict[str, Any] = POD["containers"][0]


class Exporter(socketserver.StreamRequestHandler):
    """Answers every request with the server's own bytes, or with nothing."""

    def handle(self) -> None:
        asked = self.rfile.readline().split(b" ")[1].decode()
        self.server.asked.append(asked)  # type: ignore[attr-defined]
        answer: bytes = self.server.answer  # type: ignore[attr-defined]
        if answer:
            self.wfile.write(answer)
        else:
            self.server.over.wait(20)  # type: ignore[attr-defined]


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[int, list[str]]]:
    asked: list[str] = []
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Exporter) as server:
        server.daemon_threads = True
        server.answer, server.asked, server.over = answer, asked, threading.Event()  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server.server_address[1], asked
        server.over.set()  # type: ignore[attr-defined]
        server.shutdown()
        thread.join()


def status(code: int) -> bytes:
    return f"HTTP/1.1 {code} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()


def probe(folder: Path, port: int, which: str = "live", environment: Mapping[str, str] | None = None) -> int:
    """The exit status of the probe's own command, with the script and the port where this test has them."""
    command = ENGINE[{"live": "livenessProbe", "ready": "readinessProbe"}[which]]["exec"]["command"]
    assert command == ["python3", "/etc/stuckproof/probe.py", which]
    script = folder / "probe.py"
    script.write_text(SCRIPT.replace("127.0.0.1:10140", f"127.0.0.1:{port}"))
    run = [sys.executable, str(script), which]
    return subprocess.run(run, env={**os.environ, **(environment or {})}, check=False, timeout=30).returncode


@pytest.mark.parametrize("which", ["live", "ready"])
@pytest.mark.parametrize(("code", "fails"), [(200, 0), (503, 1), (404, 0), (500, 0), (401, 0)])
def test_only_a_literal_503_fails(tmp_path: Path, which: str, code: int, fails: int) -> None:
    with answering(status(code)) as (port, asked):
        assert probe(tmp_path, port, which) == fails
    assert asked == [f"/targets/engine/{which}"]


def test_an_exporter_that_is_gone_or_speaks_no_http_fails_nothing(tmp_path: Path) -> None:
    assert probe(tmp_path, free_port()) == 0
    for garbage in (b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 503"[:6] + b"\r\n", b"\r\n"):
        with answering(garbage) as (port, _):
            assert probe(tmp_path, port) == 0


def test_a_silent_exporter_fails_nothing_and_is_given_up_before_the_kubelet_gives_up(tmp_path: Path) -> None:
    with answering(b"") as (port, _):
        assert probe(tmp_path, port) == 0
    (own,) = re.findall(r"timeout=(\d+)", SCRIPT)
    for kind in ("livenessProbe", "readinessProbe"):
        assert int(own) + 10 <= ENGINE[kind]["timeoutSeconds"], "an exec probe that times out counts as failed"


def test_a_proxy_of_the_engines_environment_is_not_asked(tmp_path: Path) -> None:
    with answering(status(503)) as (proxy, asked), answering(status(200)) as (port, _):
        named = dict.fromkeys(("http_proxy", "HTTP_PROXY"), f"http://127.0.0.1:{proxy}")
        assert probe(tmp_path, port, environment={**named, "no_proxy": ""}) == 0
    assert asked == []


def test_nothing_but_a_proven_hang_restarts_the_engine() -> None:
    assert "startupProbe" not in ENGINE, "a startup probe ends a load that takes longer than somebody guessed"
    (sidecar,) = POD["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["livenessProbe"]["httpGet"]["path"] == "/-/healthy", "its own loop, no engine"
