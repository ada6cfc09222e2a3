"""A real Alertmanager as a process of the test's own."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from e2e.tiny_docker import until
from loopback import free_port

PROGRAM = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
ALERT = {"alertname": "LLMEngineStuck", "target": "engine", "remediate": "restart"}


def stamp(at: float) -> str:
    """RFC 3339."""
    return datetime.fromtimestamp(at, UTC).isoformat()


class Alertmanager:
    """Routes everything to one webhook, with intervals of a second. `peers`: others to form a cluster with."""

    def __init__(self, folder: Path, webhook: str, *, peers: Sequence[Alertmanager] = (), max_alerts: int = 50) -> None:
        assert PROGRAM is not None
        folder.mkdir(parents=True, exist_ok=True)
        self.port, self.gossip = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        config = {
            "route": {
                "receiver": "remediator",
                "group_by": ["alertname"],
                "group_wait": "0s",
                "group_interval": "1s",
                "repeat_interval": "2s",
            },
            "receivers": [
                {
                    "name": "remediator",
                    "webhook_configs": [{"url": webhook, "send_resolved": True, "max_alerts": max_alerts}],
                }
            ],
            "inhibit_rules": [
                {
                    "source_matchers": ["alertname=Maintenance"],
                    "target_matchers": ["alertname=LLMEngineStuck"],
                    "equal": ["target"],
                }
            ],
        }
        (folder / "alertmanager.yml").write_text(json.dumps(config))
        command = [
            PROGRAM,
            f"--config.file={folder}/alertmanager.yml",
            f"--storage.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
            f"--cluster.listen-address=127.0.0.1:{self.gossip}",
            "--cluster.peer-timeout=2s",
            "--cluster.settle-timeout=1s",
            *(f"--cluster.peer=127.0.0.1:{p.gossip}" for p in peers),
        ]
        self._log = (folder / "log").open("ab")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        until("Alertmanager is ready", self._ready, within=30)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def fire(self, *labels: dict[str, str], resolved: bool = False) -> None:
        """Post alerts as Prometheus does, firing for a minute, or resolved now."""
        now = time.time()
        alerts = [
            {"labels": ls, "startsAt": stamp(now - 10), "endsAt": stamp(now if resolved else now + 60)}
            for ls in labels or (ALERT,)
        ]
        self._post("/api/v2/alerts", alerts)

    def silence(self, seconds: float = 3600.0, **labels: str) -> str:
        """Silence alerts with these labels; the silence's id."""
        matchers = [{"name": k, "value": v, "isRegex": False, "isEqual": True} for k, v in labels.items()]
        ends = datetime.now(UTC) + timedelta(seconds=seconds)
        body = {
            "matchers": matchers,
            "startsAt": datetime.now(UTC).isoformat(),
            "endsAt": ends.isoformat(),
            "createdBy": "test",
            "comment": "maintenance",
        }
        return str(self._post("/api/v2/silences", body)["silenceID"])

    def expire(self, silence: str) -> None:
        """End a silence."""
        request = urllib.request.Request(f"{self.url}/api/v2/silence/{silence}", method="DELETE")
        with urllib.request.urlopen(request, timeout=10):
            pass

    def _post(self, path: str, body: Any) -> Any:
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text.strip() else None

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(20)
        self._log.close()
