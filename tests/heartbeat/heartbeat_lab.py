"""Real servers in processes of their own, whose loops may be blocked and who may be killed."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopback import free_port

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "heartbeat"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


def request(port: int, path: str, method: str = "GET", timeout: float = 10) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


def until(what: str, probe: Any, within: float = 20) -> Any:
    """Poll until the probe is true; an error of the socket is a no."""
    end = time.monotonic() + within
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            found = probe()
            if found:
                return found
        assert time.monotonic() < end, f"not within {within:g} s: {what}"
        time.sleep(0.05)


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    port: int
    side: int
    log: Path

    def get(self, path: str, **kwargs: Any) -> Answer:
        return request(self.port, path, **kwargs)

    def aside(self, path: str, **kwargs: Any) -> Answer:
        return request(self.side, path, **kwargs)

    def metrics(self) -> dict[str, float]:
        lines = self.aside("/metrics").body.decode().splitlines()
        return {key: float(value) for key, _, value in (li.rpartition(" ") for li in lines if not li.startswith("#"))}

    def text(self) -> str:
        return self.log.read_text()

    @contextlib.contextmanager
    def blocked(self, query: str = "") -> Iterator[list[Answer]]:
        """Its loop, blocked from within a handler until the end of the context; then the handler's answer is there."""
        gate = self.log.with_name(f"gate-{time.monotonic_ns()}")
        answers: list[Answer] = []
        thread = threading.Thread(target=lambda: answers.append(self.get(f"/block?gate={gate}{query}", timeout=60)))
        thread.start()
        try:
            yield answers
        finally:
            gate.touch()
            thread.join(60)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)


@contextlib.contextmanager
def server(command: list[str], tmp_path: Path, ready: str | None = "/healthz/startup", **env: str) -> Iterator[Server]:
    """Run `python command…` with `PORT` and `SIDE` replaced; SIGKILL its session at the end."""
    port, side = free_port(), free_port()
    argv = [word.replace("PORT", str(port)) for word in command]
    log = tmp_path / f"server-{port}.log"
    # The tests that set a broken environment on purpose name their variables; nothing of ours leaks in from outside.
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("LLM_HEARTBEAT_", "PROMETHEUS_MULTIPROC"))}
    clean |= {"PYTHONPATH": f"{PACKAGE}:{HERE}", "PYTHONUNBUFFERED": "1", "PORT": str(port)}
    clean |= {"LLM_HEARTBEAT_LISTEN": f"127.0.0.1:{side}"} | env
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", *argv], env=clean, stdout=out, stderr=out, start_new_session=True
        )
    found = Server(process, port, side, log)
    try:
        if ready:
            until(f"{argv} serves\n{log.read_text()}", lambda: request(port, ready).status)
        yield found
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def uvicorn(*arguments: str, app: str = "heartbeat_apps:app") -> list[str]:
    return ["-m", "uvicorn", app, "--host", "127.0.0.1", "--port", "PORT", *arguments]
