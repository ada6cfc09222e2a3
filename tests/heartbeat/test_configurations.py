"""deploy/probes: every file by its own program, every number against the others, every check against real servers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from heartbeat.heartbeat_lab import Server, request, server, until, uvicorn
from loopback import free_port

ROOT = Path(__file__).resolve().parents[2]
PROBES = ROOT / "deploy" / "probes"
MANIFESTS = sorted((PROBES / "kubernetes").glob("*.yaml"))
KUBERNETES = ("1.30", "1.33", "1.37")


def tool(name: str) -> str:
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", *_unpacked()])
    found = shutil.which(name, path=places)
    if found is None:
        pytest.skip(f"no {name} here; scripts/probetools.sh fetches it")
    return found


def _unpacked() -> list[str]:
    cache = (
        os.environ.get("STUCKPROOF_CACHE") or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "stuckproof"
    )
    return [str(Path(cache) / "probetools" / "wrappers"), str(Path(cache) / "tools" / "bin")]


def documents(path: Path) -> list[dict[str, Any]]:
    return [d for d in yaml.safe_load_all(path.read_text()) if d]


def deployment(name: str) -> dict[str, Any]:
    return next(d for d in documents(PROBES / "kubernetes" / name) if d["kind"] == "Deployment")


def seconds(text: str) -> float:
    number, unit = re.fullmatch(r"(\d+)([smh])", text).groups()  # type: ignore[union-attr]
    return int(number) * {"s": 1, "m": 60, "h": 3600}[unit]


# Kubernetes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda p: p.name)
def test_manifests_fit_the_schemas_of_three_versions(path: Path, version: str) -> None:
    for document in documents(path):
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("version", KUBERNETES)
def test_the_schemas_refuse_a_misspelt_probe(version: str) -> None:
    wrong = deployment("vllm-13b.yaml")
    probe = wrong["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]
    probe["failureTreshold"] = probe.pop("failureThreshold")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


@pytest.mark.parametrize("name", ["vllm-13b.yaml", "vllm-70b.yaml"])
def test_the_numbers_fit_each_other(name: str) -> None:
    spec = deployment(name)["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    env = {e["name"]: e["value"] for e in container["env"]}
    startup, live, ready = (container[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness"))
    allowed = startup["periodSeconds"] * startup["failureThreshold"]
    assert allowed == seconds(env["LLM_HEARTBEAT_STARTUP_BUDGET"])
    assert spec["progressDeadlineSeconds"] > allowed
    shutdown = int(next(a for a in container["args"] if a.startswith("--shutdown-timeout")).split("=")[1])
    pre_stop = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > pre_stop + shutdown
    assert pre_stop >= ready["periodSeconds"] * 3 - ready["periodSeconds"]
    for probe, path in ((startup, "startup"), (live, "live"), (ready, "ready")):
        assert probe["httpGet"]["path"] == f"/healthz/{path}"
        assert 1 < probe["timeoutSeconds"] <= probe["periodSeconds"]
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    assert env["LLM_HEARTBEAT_LISTEN"] == f":{ports['heartbeat']}"
    assert live["httpGet"]["port"] == "heartbeat", "the main port cannot answer while its loop is blocked"
    assert live["periodSeconds"] * live["failureThreshold"] >= 60


# Docker and compose --------------------------------------------------------------------------------------------------


def healthcheck_of_the_dockerfile() -> list[str]:
    text = (PROBES / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
    found = re.search(r"^HEALTHCHECK .*CMD (\[.*\])$", text, re.MULTILINE)
    assert found is not None
    command: list[str] = json.loads(found[1])
    return command


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((PROBES / "compose.yaml").read_text())
    return found


def test_the_healthcheck_means_started_and_live(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with server(uvicorn(), tmp_path, APP_LOAD="in-background", APP_GATE=str(gate)) as app:

        def check() -> int:
            argv = [word.replace("127.0.0.1:9109", f"127.0.0.1:{app.side}") for word in healthcheck_of_the_dockerfile()]
            return subprocess.run([sys.executable, *argv[1:]], capture_output=True, check=False, timeout=30).returncode

        assert check() == 1  # loading
        app.get("/loaded")
        assert check() == 0
        app.get("/drain")
        assert app.aside("/healthz/ready").status == 503
        assert check() == 0, "not ready is not unhealthy"


def test_compose_uses_the_dockerfiles_healthcheck_and_no_autoheal() -> None:
    services = compose()["services"]
    for name in ("vllm-a", "vllm-b"):
        assert services[name]["healthcheck"]["test"] == ["CMD", *healthcheck_of_the_dockerfile()]
    assert "autoheal" not in re.sub(r"#.*", "", (PROBES / "compose.yaml").read_text())


def test_compose_file_by_compose_itself() -> None:
    docker = shutil.which("docker")
    plugin = docker and subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode == 0
    command = [docker, "compose"] if docker and plugin else [tool("docker-compose")]
    done = subprocess.run(
        [*command, "-f", "compose.yaml", "config", "--format", "json"],
        cwd=PROBES,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    services = json.loads(done.stdout)["services"]
    assert services["balancer"]["depends_on"]["vllm-a"]["condition"] == "service_healthy"
    assert services["vllm-b"]["stop_grace_period"] == "5m30s"


# systemd -------------------------------------------------------------------------------------------------------------


def test_unit_by_systemd_itself(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    text = (PROBES / "systemd" / "vllm.service").read_text()
    assert "/opt/vllm/bin/vllm" in text
    unit = tmp_path / "vllm.service"
    # The program and the user of the example are not on this machine.
    unit.write_text(text.replace("/opt/vllm/bin/vllm", sys.executable).replace("User=vllm", "User=root"))
    done = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "vllm.service" in line] == [], done.stderr
    unit.write_text(unit.read_text().replace("WatchdogSec=60s", "WatchdogSec=soon"))
    done = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    assert "Failed to parse sec value" in done.stderr, "systemd-analyze must have read the file"


def test_a_real_server_tells_systemd_when_it_is_ready_and_stops_petting_when_stuck(tmp_path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind(str(tmp_path / "notify"))
    listening.settimeout(10)
    env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "600000", "LLM_HEARTBEAT_LIVE_AFTER": "1s"}
    with listening, server(uvicorn(), tmp_path, **env) as app:
        heard = []
        while "READY=1" not in heard or "WATCHDOG=1" not in heard:
            heard.append(listening.recv(4096).decode())
        with app.blocked():
            until("live is off", lambda: app.aside("/healthz/live").status == 503)
            listening.settimeout(0.5)  # whatever was under way has come
            with contextlib.suppress(TimeoutError):
                while True:
                    listening.recv(4096)
            listening.settimeout(1.5)
            with pytest.raises(TimeoutError):
                listening.recv(4096)
        listening.settimeout(10)
        while listening.recv(4096) != b"WATCHDOG=1":
            continue


# Load balancers ------------------------------------------------------------------------------------------------------


def with_addresses(text: str, own: int, a: Server, b: Server) -> str:
    for name, app in (("vllm-a", a), ("vllm-b", b)):
        text = text.replace(f"{name}:8000", f"127.0.0.1:{app.port}").replace(f"{name}:9109", f"127.0.0.1:{app.side}")
    return re.sub(r"(listen |bind :)8000", lambda m: f"{m[1]}{own}" if m[1] == "listen " else f"bind 127.0.0.1:{own}", text)


def haproxy(tmp_path: Path, own: int, a: Server, b: Server) -> list[str]:
    text = with_addresses((PROBES / "haproxy" / "haproxy.cfg").read_text(), own, a, b)
    text = text.replace(" port 9109", "").replace("inter 2s", "inter 300ms")
    for name, app in (("a", a), ("b", b)):
        text = re.sub(rf"(server {name} \S+) check", rf"\1 check port {app.side}", text)
    assert text.count(" check port ") == 2
    config = tmp_path / "haproxy.cfg"
    config.write_text(text)
    program = tool("haproxy")
    done = subprocess.run([program, "-c", "-f", str(config)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return [program, "-db", "-f", str(config)]


def nginx(tmp_path: Path, own: int, a: Server, b: Server) -> list[str]:
    text = with_addresses((PROBES / "nginx" / "nginx.conf").read_text(), own, a, b)
    for directory in ("cache", "logs", "temp"):
        (tmp_path / directory).mkdir()
    text = text.replace("/var/cache/nginx/ready", str(tmp_path / "cache"))
    temp = "".join(
        f"    {kind}_temp_path {tmp_path}/temp;\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = text.replace("http {\n", f"http {{\n    access_log off;\n{temp}", 1)
    head = f"daemon off; master_process off; pid {tmp_path}/nginx.pid; error_log {tmp_path}/logs/error.log;\n"
    config = tmp_path / "nginx.conf"
    config.write_text(head + text)
    program = tool("nginx")
    done = subprocess.run(
        [program, "-t", "-c", str(config), "-p", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [program, "-c", str(config), "-p", str(tmp_path)]


@pytest.mark.parametrize("balancer", [haproxy, nginx])
def test_load_balancers_follow_readiness_and_fail_open(tmp_path: Path, balancer: Any) -> None:
    with server(uvicorn(), tmp_path) as a, server(uvicorn(), tmp_path) as b:
        own = free_port()
        with (tmp_path / "balancer.log").open("wb") as log:
            process = subprocess.Popen(balancer(tmp_path, own, a, b), stdout=log, stderr=log)
        try:

            def reached(times: int = 20) -> set[int]:
                found = set()
                for _ in range(times):
                    answer = request(own, "/")
                    assert answer.status == 200
                    found.add(answer.json["pid"])
                return found

            both = {a.process.pid, b.process.pid}
            until("both are used", lambda: reached() == both)
            a.get("/drain")
            until("only the ready one is used", lambda: reached() == {b.process.pid})
            b.get("/drain")
            time.sleep(1.5)  # the cached answer, or inter x fall
            assert reached() <= both, "nobody is ready: all serve, rather than nobody"
            a.get("/undrain")
            until("the one that came back is used alone", lambda: reached() == {a.process.pid})
            assert len(request(own, "/stream?chunks=30").body) == 30_000
        finally:
            process.terminate()
            process.wait(10)
