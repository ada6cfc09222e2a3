"""Real Prometheus and Alertmanager processes on free loopback ports, stopped by their own process id."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from loopback import free_port

DEADLINE = 30.0
T = TypeVar("T")


def program(*names: str) -> str:
    """The first of these programs that is installed (Debian calls Alertmanager `prometheus-alertmanager`)."""
    for name in names:
        if found := shutil.which(name):
            return found
    pytest.skip(f"{names[0]} is not installed: apt install prometheus prometheus-alertmanager")


def get(url: str, **query: str) -> Any:
    """The JSON that `url` answers."""
    full = f"{url}?{urllib.parse.urlencode(query)}" if query else url
    with urllib.request.urlopen(full, timeout=10) as answer:
        return json.load(answer)


def post(url: str, body: object) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        answer.read()


def until(look: Callable[[], T | None], what: str, deadline: float = DEADLINE) -> T:
    """Look again and again until there is something."""
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        if (found := look()) is not None:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {deadline:.0f} s: {what}")


@contextmanager
def running(argv: list[str], ready: str, log: Path) -> Iterator[None]:
    """A server process, until its `ready` URL answers 200; ended when the block ends."""
    with log.open("w") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT)
    try:

        def answers() -> bool | None:
            assert process.poll() is None, log.read_text()
            try:
                with urllib.request.urlopen(ready, timeout=2) as answer:
                    return True if answer.status == 200 else None
            except (urllib.error.URLError, OSError):
                return None

        until(answers, f"{argv[0]} is ready")
        yield
    finally:
        process.terminate()
        process.wait(timeout=20)


@contextmanager
def prometheus(home: Path, config: str, *flags: str) -> Iterator[str]:
    """A Prometheus with this configuration and the data in `home/data`; yields its URL."""
    port = free_port()
    home.mkdir(parents=True, exist_ok=True)
    (home / "prometheus.yml").write_text(config)
    argv = [
        program("prometheus"),
        f"--config.file={home / 'prometheus.yml'}",
        f"--storage.tsdb.path={home / 'data'}",
        "--storage.tsdb.retention.time=10y",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
        *flags,
    ]
    url = f"http://127.0.0.1:{port}"
    with running(argv, f"{url}/-/ready", home / "prometheus.log"):
        yield url


@contextmanager
def alertmanager(home: Path, config: Path) -> Iterator[str]:
    """An Alertmanager with this configuration file; yields its URL."""
    port = free_port()
    home.mkdir(parents=True, exist_ok=True)
    argv = [
        program("alertmanager", "prometheus-alertmanager"),
        f"--config.file={config}",
        f"--storage.path={home / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
        "--log.level=warn",
    ]
    url = f"http://127.0.0.1:{port}"
    with running(argv, f"{url}/-/ready", home / "alertmanager.log"):
        yield url
