"""Record a server's own pages while something is done to it, in the project's recording format.

Standard library only: it can be copied to the machine of an engine and run there.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def kind_of(error: BaseException) -> str:
    """The recording format's word for an error of the network."""
    kinds: list[tuple[type[BaseException], str]] = [
        (TimeoutError, "timeout"),
        (ConnectionRefusedError, "refused"),
        (ConnectionResetError, "reset"),
        (BrokenPipeError, "reset"),
        (http.client.RemoteDisconnected, "reset"),
        (socket.gaierror, "dns"),
    ]
    return next((kind for family, kind in kinds if isinstance(error, family)), "other")


class Recorder:
    """Polls ``/metrics`` and ``/health`` every ``interval`` seconds and notes what is done and which canaries were sent.

    ``headers`` go with every look (an API key where ``/metrics`` wants one); response headers named in ``keep`` are kept;
    ``extra`` are side endpoints read at every look. Lines are written when they are complete.
    """

    def __init__(
        self,
        port: int,
        *,
        interval: float = 1.0,
        timeout: float = 2.0,
        headers: Mapping[str, str] | None = None,
        keep: tuple[str, ...] = (),
        extra: tuple[str, ...] = (),
        metrics: str = "/metrics",
    ) -> None:
        self._port, self._interval, self._timeout = port, interval, timeout
        self._headers, self._keep, self._extra, self._page = dict(headers or {}), keep, extra, metrics
        self._lines: list[Line] = []
        self._began = time.monotonic()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._failure: BaseException | None = None

    def elapsed(self) -> float:
        """Seconds since the recording began."""
        return round(time.monotonic() - self._began, 3)

    def _exchange(self, method: str, path: str, timeout: float, headers: Mapping[str, str], body: str | None = None) -> Line:
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=timeout)
        try:
            connection.request(method, path, body, {**self._headers, **headers})
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            seconds = round(time.monotonic() - began, 4)
            return {"error": str(error) or type(error).__name__, "kind": kind_of(error), "seconds": seconds}
        finally:
            connection.close()
        found: Line = {
            "status": response.status,
            "seconds": round(time.monotonic() - began, 4),
            "ctype": response.getheader("Content-Type", ""),
            "body": text,
        }
        kept = {name: response.getheader(name) for name in self._keep if response.getheader(name)}
        return {**found, "headers": kept} if kept else found

    def look(self) -> None:
        """One observation."""
        line: Line = {"t": self.elapsed(), "unix": round(time.time(), 3)}
        line["metrics"] = self._exchange("GET", self._page, self._timeout, {})
        line["health"] = self._exchange("GET", "/health", self._timeout, {})
        if self._extra:
            line["extra"] = {path: self._exchange("GET", path, self._timeout, {}) for path in self._extra}
        self._lines.append(line)

    def _poll(self) -> None:
        try:
            due = self._began
            while not self._end.is_set():
                self.look()
                due = max(due + self._interval, time.monotonic())
                self._end.wait(due - time.monotonic())
        except BaseException as error:  # noqa: BLE001 - handed to whoever ends the recording
            self._failure = error

    def event(self, text: str) -> None:
        """Note what was done."""
        self._lines.append({"t": self.elapsed(), "event": text})

    def about(self, **known: str) -> None:
        """Note what else was known of the server."""
        self._lines.append({"t": 0.0, "about": known})

    def canary(
        self,
        model: str,
        *,
        lane: str | None = None,
        timeout: float = 3.0,
        key: str | None = None,
    ) -> str:
        """Send the smallest completion, pinned to a data-parallel rank if ``lane`` is given; note and return the result."""
        headers = {"Content-Type": "application/json"}
        if lane is not None:
            headers["X-data-parallel-rank"] = lane
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        body = json.dumps({"model": model, "prompt": [3], "max_tokens": 1})
        began = self.elapsed()
        answer = self._exchange("POST", "/v1/completions", timeout, headers, body)
        canary: Line = {"seconds": answer["seconds"]}
        if lane is not None:
            canary["lane"] = lane
        if "status" in answer:
            canary["status"] = answer["status"]
            canary["result"] = "answered" if answer["status"] == 200 else "http"
        else:
            canary["result"] = {"timeout": "silent", "refused": "refused"}.get(answer["kind"], "reset")
        self._lines.append({"t": began, "canary": canary})
        return str(canary["result"])

    @contextlib.contextmanager
    def running(self) -> Iterator[Recorder]:
        """Poll as long as the block runs; an error of the poller is raised at its end."""
        self._began = time.monotonic()
        self._thread.start()
        try:
            yield self
        finally:
            self._end.set()
            self._thread.join(2 * self._timeout + 5)
        if self._failure is not None:
            raise self._failure

    def write(self, path: Path) -> int:
        """Write the recording, gzipped; returns its size in bytes."""
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self._lines)
        path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        return path.stat().st_size
