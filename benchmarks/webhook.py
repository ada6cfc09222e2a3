"""How many alerts a second does the remediator take, each on disk before its answer?

    python benchmarks/webhook.py [--seconds 10] [--alerts 50] [--senders 8]

Starts the real program, posts bodies as Alertmanager does, ends it with SIGKILL while they still come, and counts
in the journal what was answered with 202. One line of JSON; exit status 1 if one accepted body is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

ROOT = Path(__file__).resolve().parents[1]
GOAL = 1000.0
"""Alerts a second that it must take (DESIGN: in bodies of up to 50)."""


def body(alerts: int, targets: int) -> bytes:
    """A body as Alertmanager sends it."""
    listed = [
        {
            "status": "firing",
            "labels": {
                "alertname": "LLMEngineStuck",
                "target": f"t{n % targets}",
                "remediate": "restart",
                "cluster": "c",
                "n": str(n),
            },
            "annotations": {"summary": "no progress with held work", "description": "x" * 200},
            "startsAt": "2026-11-30T03:00:00Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "http://prometheus:9090/graph?g0.expr=x",
            "fingerprint": f"{n:016x}",
        }
        for n in range(alerts)
    ]
    return json.dumps({"version": "4", "groupKey": "g", "receiver": "r", "status": "firing", "alerts": listed}).encode()


def start(folder: Path, port: int, targets: int) -> subprocess.Popen[bytes]:
    """The remediator in observe mode, with nobody behind it."""
    config = folder / "remediator.yml"
    config.write_text(
        json.dumps(
            {
                "exporter": "http://127.0.0.1:9",
                "journal": f"{folder}/journal.sqlite",
                "docker": {"hosts": {"local": f"unix://{folder}/none.sock"}},
                "targets": [{"name": f"t{n}", "docker": {"container": f"c{n}"}} for n in range(targets)],
            }
        )
    )
    return subprocess.Popen(
        [sys.executable, "-m", "llm_remediator.cli", f"--config.file={config}", f"--web.listen-address=127.0.0.1:{port}"],
        env=os.environ | {"PYTHONPATH": f"{ROOT}/common:{ROOT}/remediator"},
        stderr=subprocess.DEVNULL,
    )


async def send(port: int, data: bytes, senders: int, seconds: float, process: subprocess.Popen[bytes]) -> list[float]:
    """Latencies of the bodies that were answered with 202."""
    took: list[float] = []
    url = f"http://127.0.0.1:{port}"
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession() as http:
        for _ in range(200):
            try:
                async with http.get(f"{url}/-/healthy") as answer:
                    if answer.status == 200:
                        break
            except aiohttp.ClientError:
                await asyncio.sleep(0.1)
        end = time.monotonic() + seconds

        async def sender() -> None:
            while time.monotonic() < end + 2:
                began = time.monotonic()
                try:
                    async with http.post(f"{url}/api/v1/alerts", data=data, headers=headers) as answer:
                        if answer.status == 202:
                            took.append(time.monotonic() - began)
                except aiohttp.ClientError:
                    return

        async def killer() -> None:
            await asyncio.sleep(max(0.0, end - time.monotonic()))
            process.send_signal(signal.SIGKILL)

        await asyncio.gather(killer(), *(sender() for _ in range(senders)))
    return took


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--alerts", type=int, default=50)
    parser.add_argument("--senders", type=int, default=8)
    args = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process = start(folder, port, targets=20)
        took = asyncio.run(send(port, body(args.alerts, 20), args.senders, args.seconds, process))
        process.wait(10)
        journal = sqlite3.connect(folder / "journal.sqlite")
        stored = journal.execute("SELECT COUNT(*) FROM deliveries").fetchone()[0]
        journal.close()
    took.sort()
    rate = len(took) * args.alerts / args.seconds
    result = {
        "alerts_per_second": round(rate),
        "times_the_goal": round(rate / GOAL, 2),
        "bodies_accepted": len(took),
        "bodies_stored": stored,
        "lost": max(0, len(took) - stored),
        "latency_p50_ms": round(took[len(took) // 2] * 1000, 1) if took else None,
        "latency_p99_ms": round(took[int(len(took) * 0.99)] * 1000, 1) if took else None,
    }
    print(json.dumps(result))
    return 1 if result["lost"] or not took else 0


if __name__ == "__main__":
    sys.exit(main())
