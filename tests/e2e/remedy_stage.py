"""The remediator as its own process against real Docker, with an exporter and an Alertmanager that tests direct.

The stand-in exporter judges by Docker's own record: stuck until the container was started anew, then busy. So
what it says follows from what really happened to the container, and a restart that did not happen stays visible.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import docker
from docker.models.containers import Container

from e2e.tiny_docker import SOCKET, until
from loopback import free_port

RUN = (
    "import asyncio, sys; from llm_common import logs; from llm_remediator import app, config;"
    "logs.setup('debug', 'logfmt');"
    "asyncio.run(app.run(config.load(sys.argv[1]), app.Serving(listen=(sys.argv[2],))))"
)
ROOT = Path(__file__).resolve().parents[2]


def unix(text: str) -> float:
    """Docker's time as Unix seconds."""
    whole, _, rest = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{rest or 0}")


class Stage:
    """One target, one container, one remediator at a time."""

    def __init__(self, folder: Path, client: docker.DockerClient, container: Container, **settings: Any) -> None:
        self.name = "engine"
        self.folder = folder
        self.client = client
        self.container = container
        self.began = time.time()
        container.reload()
        self.original = container.attrs["State"]["StartedAt"]
        self.recovers = True
        self.blind = False
        self.silenced = False
        self.firing = True
        self.away = False
        """The exporter has no answer: while Docker, which this one asks, is not there."""
        self.verdict: Callable[[dict[str, Any]], str] | None = None
        self.notices: list[dict[str, Any]] = []
        self.proofs = 0
        self.port = free_port()
        self.world = _serve(self)
        self.process: subprocess.Popen[bytes] | None = None
        self.config = folder / "remediator.yml"
        self.journal = folder / "journal.sqlite"
        defaults = {
            "startup_grace": "0s",
            "cooldown": "3s",
            "stop_timeout": "2s",
            "verify_within": "20s",
            "min_healthy": "1h",
        } | settings.pop("defaults", {})
        base = f"http://127.0.0.1:{self.world.server_port}"
        self.config.write_text(
            json.dumps(
                {
                    "mode": "act",
                    "exporter": base,
                    "alertmanagers": [f"{base}/am"],
                    "journal": str(self.journal),
                    "docker": {"hosts": {"local": f"unix://{SOCKET}"}},
                    "interval": "1s",
                    "notify": {"url": f"{base}/notify"},
                    "defaults": defaults,
                    "targets": [{"name": self.name, "docker": {"container": container.name}}],
                }
                | settings
            )
        )

    # --- the process

    def start(self, fault: str = "") -> None:
        """Run a remediator; `fault`: where it dies."""
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("common", "remediator")),
            "STUCKPROOF_FAULT": fault,
        }
        log = (self.folder / "remediator.log").open("ab")
        command = [sys.executable, "-c", RUN, str(self.config), f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        log.close()

    def wait_for_death(self, within: float = 40.0) -> int:
        """The exit status of a process that dies by itself."""
        assert self.process is not None
        return self.process.wait(within)

    def stop(self, *, kill: bool = False) -> None:
        """End it."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill() if kill else self.process.terminate()
            self.process.wait(20)

    def close(self) -> None:
        """End everything."""
        self.stop(kill=True)
        self.world.shutdown()
        self.world.server_close()

    # --- looking

    def attempts(self) -> list[dict[str, Any]]:
        """All attempts in the journal, oldest first."""
        return self.rows("SELECT * FROM attempts ORDER BY id")

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Rows of the journal, read beside its owner."""
        if not self.journal.exists():
            return []
        db = sqlite3.connect(f"{self.journal.as_uri()}?mode=ro", uri=True, timeout=5)
        db.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in db.execute(query)]
        except sqlite3.OperationalError:
            return []
        finally:
            db.close()

    def wait_closed(self, count: int = 1, within: float = 60.0) -> list[dict[str, Any]]:
        """Until that many attempts are closed."""

        def look() -> list[dict[str, Any]] | None:
            found = self.attempts()
            return found if sum(a["phase"] == "closed" for a in found) >= count else None

        found: list[dict[str, Any]] = until(f"{count} attempts closed", look, within)
        return found

    def wait_decision(self, reason: str, within: float = 20.0) -> dict[str, Any]:
        """Until a decision with that reason was made."""
        query = f"SELECT * FROM decisions WHERE reason = '{reason}' ORDER BY id DESC"
        found: dict[str, Any] = until(f"decision {reason}", lambda: (self.rows(query) or [None])[0], within)
        return found

    def get(self, path: str) -> Any:
        """JSON from the remediator's API."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return json.load(answer)

    def post(self, path: str, body: Any) -> int:
        """The status of a POST; 0 if nobody listens."""
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def webhook(self, status: str = "firing") -> dict[str, Any]:
        """What Alertmanager would send."""
        alert = {"status": status, "labels": self._labels(), "annotations": {}, "startsAt": "2026-01-01T00:00:00Z"}
        alert |= {"endsAt": "0001-01-01T00:00:00Z", "generatorURL": "", "fingerprint": "0123456789abcdef"}
        return {"version": "4", "groupKey": "g", "truncatedAlerts": 0, "status": status, "receiver": "r", "alerts": [alert]}

    def state(self) -> dict[str, Any]:
        """Docker's `State` of the container."""
        self.container.reload()
        found: dict[str, Any] = self.container.attrs["State"]
        return found

    def starts(self) -> int:
        """How often Docker started it since the stage was set, by Docker's own record."""
        filters = {"container": self.container.id, "event": "start"}
        events = self.client.events(since=f"{self.began:.3f}", until=f"{time.time():.3f}", filters=filters, decode=True)
        return sum(1 for _ in events)

    # --- what the world says

    def _labels(self) -> dict[str, str]:
        return {"alertname": "LLMEngineStuck", "target": self.name, "remediate": "restart"}

    def answer(self, method: str, path: str) -> Any:
        """The body of a request to the exporter or Alertmanager, None for 404."""
        if path.startswith("/am/api/v2/alerts"):
            status = {
                "state": "suppressed" if self.silenced else "active",
                "silencedBy": ["s1"] if self.silenced else [],
                "inhibitedBy": [],
            }
            alert = {"labels": self._labels(), "status": status, "fingerprint": "0123456789abcdef", "annotations": {}}
            return [alert | {"startsAt": "2026-01-01T00:00:00Z"}] if self.firing else []
        if self.away:
            return None
        if path == "/api/v1/targets":
            return {"targets": [self._report()]}
        if path == f"/api/v1/targets/{self.name}":
            return self._report()
        if path == f"/api/v1/targets/{self.name}/proof" and method == "POST":
            self.proofs += 1
            report = self._report()
            return {
                "target": self.name,
                "state": report["state"],
                "sentence": report["sentence"],
                "reason": "r",
                "flat_since": unix(self.state()["StartedAt"]) + 2.0 if report["state"] == "stuck" else None,
                "process_started": report["process_started"],
                "observed_at": time.time(),
                "hardware": None,
                "evidence": [],
            }
        return None

    def _report(self) -> dict[str, Any]:
        now, state = time.time(), self.state()
        anew = state["StartedAt"] != self.original
        started = unix(state["StartedAt"])
        word = "down" if not state["Running"] else "busy" if anew and self.recovers else "stuck"
        if self.verdict is not None:
            word = self.verdict(state)
        return {
            "name": self.name,
            "url": "http://127.0.0.1:1",
            "kind": "vllm",
            "state": word,
            "since": started + 0.5 if anew else unix(self.original),
            "reason": "r",
            "sentence": f"{word}: told by the stage",
            "held": 3,
            "progress": 1 if word == "busy" else 0,
            "up": word != "down",
            "last_observation": now,
            "process_started": unix(self.original) if self.blind else started,
            "last_restart_seen": started if anew and not self.blind else None,
            "last_unserved": None,
            "restarts_seen": 0,
            "idle_verified_at": None,
            "last_progress": now if word == "busy" else None,
        }


def _serve(stage: Stage) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            if self.path == "/notify":
                stage.notices.append(json.loads(body))
                self._send(200, {})
            else:
                self._answer("POST")

        def _answer(self, method: str) -> None:
            found = stage.answer(method, self.path)
            self._send(404 if found is None else 200, found if found is not None else {"error": "no"})

        def _send(self, status: int, body: Any) -> None:
            raw = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
