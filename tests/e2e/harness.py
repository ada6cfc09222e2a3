"""The compose stack as a test sees it: through Docker, and through the HTTP interfaces that people use."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from loopback import free_port

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = ROOT / "deploy" / "compose"
PORTS = ("EXPORTER_PORT", "REMEDIATOR_PORT", "PROMETHEUS_PORT", "ALERTMANAGER_PORT")
HUNG, BUSY = "demo-a", "demo-b"
T = TypeVar("T")


def wait_for(what: str, within: float, look: Callable[[], T | None], every: float = 0.25) -> T:
    """The first result that is neither None nor False; fails after `within` seconds, saying what it waited for."""
    deadline = time.monotonic() + within
    last: object = None
    while time.monotonic() < deadline:
        try:
            found = look()
        except (urllib.error.URLError, OSError) as error:
            last = error
        else:
            if found is not None and found is not False:
                return found
            last = found
        time.sleep(every)
    raise AssertionError(f"not within {within:.0f} s: {what} (last: {last!r})")


@dataclass(frozen=True)
class Answer:
    """One HTTP answer, whatever its status."""

    status: int
    text: str

    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.text)


@dataclass
class Stack:
    """What `make run` brings up, under another project name and on free ports, with the demo's own settings."""

    project: str
    folder: Path
    ports: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in PORTS})
    _token: str = ""
    _events: subprocess.Popen[bytes] | None = None

    @property
    def _starts_file(self) -> Path:
        return self.folder / "starts.txt"

    # --- life

    def up(self) -> None:
        """Write the settings, then `make run`, as a person does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("exporter.yml", "remediator.yml"):
            text = (SETTINGS / name).read_text()
            copy = self.folder / name
            copy.write_text(text.replace("compose_project: stuckproof,", f"compose_project: {self.project},"))
            copy.chmod(0o644)
        self.stop()
        # The daemon remembers only its last 256 events, of everybody's containers: they are written down as they come.
        with self._starts_file.open("w") as starts:
            self._events = subprocess.Popen(
                ["docker", "events", "--filter", "event=start",
                 "--filter", f"label=com.docker.compose.project={self.project}",
                 "--format", '{{.TimeNano}} {{index .Actor.Attributes "com.docker.compose.service"}}'],
                stdout=starts,
            )  # fmt: skip
        self.make("run", timeout=400)
        self._token = self.docker("exec", self.container("remediator"), "cat", "/run/stuckproof/token")

    def stop(self) -> None:
        """`make stop`, which must leave nothing behind."""
        if self._events is not None:
            self._events.terminate()
            self._events.wait(10)
            self._events = None
        self.make("stop", timeout=120)
        label = f"label=com.docker.compose.project={self.project}"
        for what in (["container", "ls", "--all"], ["volume", "ls"], ["network", "ls"]):
            left = self.docker(*what, "--quiet", "--filter", label)
            assert left == "", f"make stop left {what[0]} {left}"

    def make(self, target: str, timeout: float, **variables: str) -> str:
        """Run one make target on this project; what it printed."""
        return run(["make", "--no-print-directory", "-C", str(ROOT), target], timeout, self.environment | variables)

    @property
    def environment(self) -> dict[str, str]:
        """How this project differs from the one that a person may have running beside it."""
        ours = {"YES": "1", "KEEP": "1", "COMPOSE_PROJECT_NAME": self.project, "STUCKPROOF_CONFIG": str(self.folder)}
        return os.environ | {name: str(port) for name, port in self.ports.items()} | ours

    def compose(self, *arguments: str, timeout: float = 60) -> str:
        """Run Compose on this project."""
        command = shlex.split(os.environ.get("COMPOSE", "docker compose"))
        command += ["--progress", "quiet", "-f", str(ROOT / "compose.yaml"), "--profile", "demo"]
        return run([*command, *arguments], timeout, self.environment)

    def docker(self, *arguments: str, timeout: float = 60) -> str:
        """Run one docker command."""
        return run(["docker", *arguments], timeout)

    def container(self, service: str) -> str:
        """Name of a service's container."""
        return f"{self.project}-{service}-1"

    def keep_logs(self, where: Path) -> None:
        """Everything that was said, and the decisions, for whoever reads a failure."""
        where.mkdir(parents=True, exist_ok=True)
        (where / "ps.txt").write_text(self.compose("ps", "-a"))
        (where / "all.log").write_text(self.compose("logs", "--no-color", "--timestamps", timeout=120))
        with contextlib.suppress(OSError, AssertionError):
            (where / "decisions.json").write_text(self.remediator("GET", "/api/v1/decisions?limit=1000").text)
            (where / "exporter.json").write_text(self.exporter("/api/v1/targets").text)
            (where / "metrics.txt").write_text(self.remediator("GET", "/metrics").text)

    # --- looking

    def incarnation(self, service: str) -> str:
        """Container id and start: changes with every start."""
        return self.docker("inspect", "--format", "{{.Id}} {{.State.StartedAt}}", self.container(service))

    def starts(self, service: str, since: float) -> int:
        """How often Docker started this container since then, as Docker itself said at the time."""
        assert self._events is not None
        assert self._events.poll() is None, "docker events has ended: nobody counts the starts"
        started = [line.split() for line in self._starts_file.read_text().splitlines()]
        return sum(1 for at, name in started if name == service and int(at) / 1e9 >= since)

    def exporter(self, path: str) -> Answer:
        """GET from the exporter."""
        return self._http("GET", self.ports["EXPORTER_PORT"], path)

    def target(self, name: str) -> dict[str, Any]:
        """What the exporter says of a target."""
        found: dict[str, Any] = self.exporter(f"/api/v1/targets/{name}").json()
        return found

    def canaries(self, name: str) -> float:
        """Requests that the exporter has sent to a target, ever."""
        return sum(samples(self.exporter("/metrics").text, "llm_canary_requests_total", target=name).values())

    def remediator(self, method: str, path: str, body: object = None, token: str | None = None) -> Answer:
        """Ask the remediator, with its token."""
        return self._http(method, self.ports["REMEDIATOR_PORT"], path, body, self._token if token is None else token)

    def decisions(self, since: float, target: str = HUNG) -> list[dict[str, Any]]:
        """What the remediator decided since then, newest first."""
        answer = self.remediator("GET", f"/api/v1/decisions?target={target}&since={since}&limit=1000")
        found: list[dict[str, Any]] = answer.json()["decisions"]
        return found

    def outcomes(self, target: str = HUNG) -> dict[str, float]:
        """How often attempts ended in which way."""
        page = self.remediator("GET", "/metrics").text
        return {
            labels["outcome"]: value
            for labels, value in parsed(samples(page, "llm_remediation_actions_total", target=target))
            if value
        }

    def gauge(self, name: str, target: str = HUNG) -> float | None:
        """One of the remediator's gauges of a target."""
        found = samples(self.remediator("GET", "/metrics").text, name, target=target)
        return next(iter(found.values()), None)

    def restart_alerts(self, target: str = HUNG) -> list[dict[str, Any]]:
        """Active alerts in Alertmanager that ask for a restart of a target."""
        query = urllib.parse.urlencode({"active": "true", "filter": 'remediate="restart"'})
        alerts = self._http("GET", self.ports["ALERTMANAGER_PORT"], f"/api/v2/alerts?{query}").json()
        return [a for a in alerts if a["labels"].get("target") == target and a["status"]["state"] == "active"]

    # --- doing

    def fault(self, action: str, service: str = HUNG) -> float:
        """SIGSTOP (`hang`), SIGCONT (`continue`) or SIGKILL (`kill`) the engine process; when it was done."""
        self.docker("exec", self.container(service), "python", "-m", "llm_sim.fault", action)
        return time.time()

    def ask(self, service: str, timeout: float) -> bool:
        """Whether a completion is answered in time: what a watchdog of the old kind would find out."""
        code = (
            "import json,urllib.request as u,sys\n"
            "r=u.Request('http://127.0.0.1:8000/v1/completions',json.dumps({'prompt':[1],'max_tokens':1}).encode(),"
            "{'Content-Type':'application/json'})\n"
            f"try: u.urlopen(r,timeout={timeout})\n"
            "except TimeoutError: print('silent')\n"
            "else: print('answered')\n"
        )
        return self.docker("exec", self.container(service), "python", "-c", code) == "answered"

    def settle(self, within: float = 120) -> None:
        """Until the demo's engines are busy and nothing of an earlier test still counts against a restart."""

        def calm() -> bool:
            page = self.remediator("GET", "/metrics").text
            until = samples(page, "llm_remediation_cooldown_until_timestamp_seconds", target=HUNG)
            return (
                all(self.target(name)["state"] == "busy" for name in (HUNG, BUSY))
                and not any(samples(page, "llm_remediation_in_progress").values())
                and not any(samples(page, "llm_remediation_latched").values())
                and not any(samples(page, "llm_remediation_paused").values())
                and time.time() > max(until.values(), default=0)
            )

        wait_for("both engines busy, nothing in flight, no cooldown", within, calm, every=0.5)

    def webhook(self, status: str = "firing", target: str = HUNG) -> dict[str, Any]:
        """What Alertmanager would post about the active alert of this target."""
        alerts = self.restart_alerts(target)
        labels = alerts[0]["labels"] if alerts else {"alertname": "LLMEngineStuck", "remediate": "restart", "target": target}
        alert = {
            "status": status,
            "labels": labels,
            "annotations": alerts[0]["annotations"] if alerts else {},
            "startsAt": alerts[0]["startsAt"] if alerts else "2026-01-01T00:00:00Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "",
            "fingerprint": alerts[0]["fingerprint"] if alerts else "0123456789abcdef",
        }
        return {
            "version": "4",
            "groupKey": '{}/{remediate="restart"}:{alertname="LLMEngineStuck"}',
            "truncatedAlerts": 0,
            "status": status,
            "receiver": "remediator",
            "groupLabels": {"alertname": "LLMEngineStuck", "target": target},
            "commonLabels": labels,
            "commonAnnotations": {},
            "externalURL": "http://alertmanager:9093",
            "alerts": [alert],
        }

    def post_webhooks(self, pool: ThreadPoolExecutor, count: int) -> list[Future[int]]:
        """The same webhook `count` times at once; status codes, 0 where nobody answered."""
        body = self.webhook()

        def post() -> int:
            try:
                return self.remediator("POST", "/api/v1/alerts", body).status
            except OSError:
                return 0

        return [pool.submit(post) for _ in range(count)]

    def kill_remediator(self) -> None:
        """SIGKILL, a start, and a wait until it is ready again."""
        name = self.container("remediator")
        self.docker("kill", "--signal", "KILL", name)
        self.docker("start", name)
        wait_for("the remediator is ready again", 30, lambda: self.remediator("GET", "/-/ready").status == 200)

    def _http(self, method: str, port: int, path: str, body: object = None, token: str = "") -> Answer:
        return http(method, f"http://127.0.0.1:{port}{path}", body, token)


def http(method: str, url: str, body: object = None, token: str = "") -> Answer:
    """One request; a status that means an error is an answer too."""
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=15) as answer:
            return Answer(answer.status, answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read().decode())


def run(command: list[str], timeout: float, environment: dict[str, str] | None = None) -> str:
    """Standard output; fails with what the command said."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment, check=False)
    assert done.returncode == 0, f"{shlex.join(command)}: {done.stderr.strip() or done.stdout.strip()}"
    return done.stdout.strip()


def samples(page: str, name: str, **labels: str) -> dict[str, float]:
    """Samples of a metric whose labels include these, by label text."""
    found: dict[str, float] = {}
    for line in page.splitlines():
        match = re.fullmatch(rf"{name}(?:{{(.*)}})? (\S+)", line)
        if match and all(f'{key}="{value}"' in (match[1] or "") for key, value in labels.items()):
            found[match[1] or ""] = float(match[2])
    return found


def parsed(found: dict[str, float]) -> list[tuple[dict[str, str], float]]:
    """The same with the labels as a mapping."""
    return [(dict(re.findall(r'(\w+)="([^"]*)"', text)), value) for text, value in found.items()]


def docker_answers() -> bool:
    """Whether a Docker Engine can be used here."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "version"], capture_output=True, timeout=30, check=False).returncode == 0
