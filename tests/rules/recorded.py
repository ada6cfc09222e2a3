"""Servers that say again what a real engine once said: pages, health codes, timeouts and refused ports, at the same pace."""

from __future__ import annotations

import gzip
import json
import threading
import time
from bisect import bisect_right
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from loopback import free_port

RECORDINGS = Path(__file__).parents[1] / "recordings"


def observations(name: str) -> list[dict[str, Any]]:
    """The looks of a recording, by time."""
    with gzip.open(RECORDINGS / f"{name}.jsonl.gz", "rt") as lines:
        return sorted((r for r in map(json.loads, lines) if "metrics" in r), key=lambda r: r["t"])


class RecordedServer:
    """One port that behaves as the recorded engine did, from `play()` on; afterwards it stays as it was at the end."""

    def __init__(self, name: str) -> None:
        self.name, self.looks, self.port = name, observations(name), free_port()
        self.times = [look["t"] for look in self.looks]
        self.began = time.monotonic() + 1e9
        self.listening: ThreadingHTTPServer | None = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def play(self, began: float) -> None:
        """Begin at this moment of the monotonic clock."""
        self.began = began

    def now(self) -> dict[str, Any]:
        """The look that holds now."""
        return self.looks[max(0, bisect_right(self.times, time.monotonic() - self.began) - 1)]

    def close(self) -> None:
        self.ended.set()
        self.thread.join()

    def _run(self) -> None:
        """Listen, except while the recorded port refused connections."""
        while not self.ended.wait(0.2):
            refused = self.now()["metrics"].get("kind") == "refused"
            if refused and self.listening:
                self._silence()
            elif not refused and not self.listening:
                self.listening = self._listen()
        self._silence()

    def _listen(self) -> ThreadingHTTPServer:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        class Server(ThreadingHTTPServer):
            allow_reuse_address = True
            daemon_threads = True

        server = Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return server

    def _silence(self) -> None:
        if self.listening:
            self.listening.shutdown()
            self.listening.server_close()
            self.listening = None

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """The recorded answer, or none while there was none."""
        what = {"/metrics": "metrics", "/health": "health"}.get(request.path)
        while "kind" in self.now()["metrics"]:
            if self.ended.wait(0.2):
                return
        found = self.now().get(what) if what else None
        body = str((found or {}).get("body") or "").encode()
        request.send_response(int((found or {"status": 404})["status"]))
        request.send_header("Content-Type", (found or {}).get("ctype") or "text/plain")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
