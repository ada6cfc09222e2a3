"""The real exporter as a process, and a watch on what it says about one target."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from engines import lab

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [str(ROOT / name) for name in ("common", "exporter")]

# Bounds of seconds instead of minutes; canaries twice as patient as the slowest answer seen on two shared cores.
IMPATIENT: dict[str, Any] = {
    "interval": "2s",
    "timeout": "1800ms",
    "stalled_after": "6s",
    "stuck_after": "16s",
    "stuck_after_blind": "45s",
    "start_grace": "0s",
    "canary": {"confirm": True, "idle": "auto", "every": "8s", "timeout": "4s"},
}


@dataclass(frozen=True)
class Said:
    """What the exporter said of a target at one moment; ``t`` counts from the beginning of the watch."""

    t: float
    state: str
    sentence: str
    reason: str
    progress: int | None
    lanes: dict[str, dict[str, Any]]
    target: dict[str, Any]


class Exporter:
    """``llm-exporter`` with a configuration file, on a port of its own."""

    def __init__(
        self, home: Path, port: int, targets: Sequence[dict[str, Any]], defaults: dict[str, Any] | None = None
    ) -> None:
        self.port, self._home = port, home
        self._config = home / "exporter.yml"
        # JSON is YAML.
        self._config.write_text(json.dumps({"defaults": defaults or IMPATIENT, "targets": list(targets)}))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Exporter:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(PACKAGES), "PYTHONWARNINGS": "default"}
        with (self._home / "exporter.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "llm_exporter.cli",
                    f"--config.file={self._config}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        process = self._process
        try:
            lab.wait_for(
                "the exporter serves", lambda: process.poll() is not None or lab.answers(self.port, "/-/healthy"), 60
            )
            assert process.poll() is None, f"the exporter ended with {process.returncode}:\n{self.log()}"
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(5)

    def log(self) -> str:
        """The end of its log."""
        return (self._home / "exporter.log").read_text(errors="replace")[-4000:]

    def api(self, path: str) -> dict[str, Any]:
        """``GET /api/v1/…``."""
        status, body = lab.get(self.port, path)
        assert status == 200, (path, status, body[:300])
        answer = json.loads(body)
        assert isinstance(answer, dict)
        return answer

    def metric(self, name: str, **labels: str) -> float | None:
        """The sum of the samples of that name that have these labels; None where there is none."""
        status, body = lab.get(self.port, "/metrics")
        assert status == 200, status
        found: list[float] = []
        for line in body.decode().splitlines():
            if line.startswith(name) and line[len(name)] in " {":
                have = dict(re.findall(r'(\w+)="([^"]*)"', line))
                if labels.items() <= have.items():
                    found.append(float(line.rsplit(" ", 1)[1]))
        return sum(found) if found else None

    def canaries(self, target: str) -> float:
        """How many requests of its own it has sent there."""
        return self.metric("llm_canary_requests_total", target=target) or 0.0

    def probe(self, target: str, which: str) -> tuple[int, dict[str, Any]]:
        """``/targets/NAME/live`` and the like: status and body."""
        status, body = lab.get(self.port, f"/targets/{target}/{which}")
        return status, json.loads(body)


class Watch:
    """Asks the exporter for its verdict several times a second and remembers every change."""

    def __init__(self, exporter: Exporter, target: str) -> None:
        self._exporter, self._target = exporter, target
        self._began = time.monotonic()
        self._said: list[Said] = []
        self._end = threading.Event()
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def _poll(self) -> None:
        while not self._end.wait(0.25):
            try:
                answer = self._exporter.api(f"/api/v1/targets/{self._target}")
            except (OSError, http.client.HTTPException, AssertionError, ValueError) as error:
                self._failure = f"the exporter did not answer: {error!r}\n{self._exporter.log()}"
                return
            self._said.append(
                Said(
                    time.monotonic() - self._began,
                    answer["state"],
                    answer["sentence"],
                    answer["reason"],
                    answer["progress"],
                    {lane["lane"]: lane for lane in answer["lanes"]},
                    answer,
                )
            )

    def __enter__(self) -> Watch:
        self._thread.start()
        self.until(lambda said: True, 30, "the first verdict")
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(10)

    @property
    def now(self) -> Said:
        """The newest verdict."""
        assert self._failure is None, self._failure
        return self._said[-1]

    @property
    def elapsed(self) -> float:
        """Seconds since the watch began."""
        return time.monotonic() - self._began

    def until(self, wanted: Callable[[Said], bool] | str, within: float, what: str = "") -> Said:
        """Wait for a verdict made from now on; ``AssertionError`` with what was said instead."""
        since = self.elapsed if self._said else 0.0
        test = (lambda said: said.state == wanted) if isinstance(wanted, str) else wanted
        index = 0
        end = time.monotonic() + within
        while True:
            assert self._failure is None, self._failure
            said = self._said
            while index < len(said):
                if said[index].t >= since and test(said[index]):
                    return said[index]
                index += 1
            assert time.monotonic() < end, f"not within {within:g}s: {what or wanted}; said: {self.story()}"
            time.sleep(0.1)

    def stays(self, seconds: float) -> list[Said]:
        """Let time go by; returns what was said meanwhile."""
        since = self.elapsed
        time.sleep(seconds)
        assert self._failure is None, self._failure
        return [said for said in self._said if said.t >= since]

    def states(self, since: float = 0.0, lane: str | None = None) -> list[str]:
        """States in order, repetitions left out; of a lane if one is named.

        Moments in which the exporter says that the machine gave it no time to look are no verdicts, and left out.
        """
        found = [said for said in self._said if said.t >= since and not said.reason.startswith("not looked at")]
        names = [said.state if lane is None else said.lanes.get(lane, {}).get("state", said.state) for said in found]
        return [state for state, _ in groupby(names)]

    def longest(self, state: str) -> float:
        """Seconds of the longest stretch in a state."""
        longest, began = 0.0, None
        for said in self._said:
            if said.state == state:
                began = said.t if began is None else began
                longest = max(longest, said.t - began)
            else:
                began = None
        return longest

    def story(self) -> str:
        """All changes with their sentences, for the reader of a failed test."""
        lines = []
        for (state, _), group in groupby(self._said, key=lambda said: (said.state, said.reason[:25])):
            first = next(iter(group))
            lines.append(f"{first.t:7.1f}s {state}: {first.sentence}")
        return "\n" + "\n".join(lines)


@contextlib.contextmanager
def watching(exporter: Exporter, target: str) -> Iterator[Watch]:
    """A watch whose story is shown if the block fails."""
    with Watch(exporter, target) as watch:
        try:
            yield watch
        except BaseException as error:
            error.add_note(f"what the exporter said of {target}:{watch.story()}")
            raise
