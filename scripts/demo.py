"""make demo: hang one engine of the running stack, and show how it is found and restarted, and the busy one is not.

Exit status 0 only if the hung engine was restarted exactly once and serves again, and the saturated neighbour was neither
restarted nor sent a request. Standard library only: it runs with the machine's own Python.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request

PROJECT = os.environ.get("COMPOSE_PROJECT_NAME", "stuckproof")
EXPORTER = f"http://127.0.0.1:{os.environ.get('EXPORTER_PORT', '10140')}"
REMEDIATOR = f"http://127.0.0.1:{os.environ.get('REMEDIATOR_PORT', '10141')}"
ALERTMANAGER = f"http://127.0.0.1:{os.environ.get('ALERTMANAGER_PORT', '9093')}"
HUNG, BUSY = "demo-a", "demo-b"
DEADLINE = float(os.environ.get("DEMO_DEADLINE", "180"))
CALM_AFTERWARDS = 15.0
GOOD = {"verified", "recovered"}


class NotProvedError(Exception):
    """What was promised did not happen; the text says what."""


def docker(*arguments: str) -> str:
    """Standard output of one docker command."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, timeout=30)
    if done.returncode != 0:
        raise NotProvedError(f"docker {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def container(service: str) -> str:
    """Name of the service's container."""
    return f"{PROJECT}-{service}-1"


def started_at(service: str) -> str:
    """When its container was started, as Docker writes it."""
    return docker("inspect", "--format", "{{.Id}} {{.State.StartedAt}}", container(service))


def get(url: str, token: str | None = None) -> str:
    """Body of one GET."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 (our own loopback URLs)
    with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
        body: str = answer.read().decode()
        return body


def target(name: str) -> dict[str, object]:
    """What the exporter says of one target."""
    found: dict[str, object] = json.loads(get(f"{EXPORTER}/api/v1/targets/{name}"))
    return found


def metric(page: str, name: str, **labels: str) -> dict[str, float]:
    """Samples of one metric whose labels include these, by their label text."""
    found = {}
    for line in page.splitlines():
        match = re.fullmatch(rf"{name}(?:{{(.*)}})? (\S+)", line)
        if match and all(f'{key}="{value}"' in (match[1] or "") for key, value in labels.items()):
            found[match[1] or ""] = float(match[2])
    return found


def canaries(name: str) -> float:
    """Requests that the exporter ever sent to a target."""
    return sum(metric(get(f"{EXPORTER}/metrics"), "llm_canary_requests_total", target=name).values())


def outcomes(token: str) -> dict[str, float]:
    """How often the remediator's attempts on the hung engine ended in which way."""
    samples = metric(get(f"{REMEDIATOR}/metrics", token), "llm_remediation_actions_total", target=HUNG)
    return {match[1]: value for labels, value in samples.items() if (match := re.search(r'outcome="([^"]*)"', labels))}


def firing(name: str) -> bool:
    """Whether Alertmanager has the alert that asks for a restart."""
    alerts = json.loads(get(f"{ALERTMANAGER}/api/v2/alerts?active=true&filter=remediate%3D%22restart%22"))
    return any(alert["labels"].get("target") == name for alert in alerts)


class Timeline:
    """Prints what is new, with the seconds since the hang."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._last: dict[str, object] = {}

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._begin

    def say(self, text: str) -> None:
        """One line."""
        print(f"{self.seconds:7.1f}s  {text}", flush=True)

    def know(self, **values: object) -> None:
        """What need not be said again."""
        self._last.update(values)

    def changed(self, key: str, value: object, text: str) -> None:
        """One line if `value` differs from the last one of this key."""
        if self._last.get(key) != value:
            self._last[key] = value
            self.say(text)


def wait_for_calm(token: str) -> None:
    """Until both engines are busy, as the demo's clients keep them, and nothing is being remediated."""
    print("waiting until both engines are busy …", flush=True)
    begin = time.monotonic()
    while True:
        states = {name: target(name) for name in (HUNG, BUSY)}
        acting = metric(get(f"{REMEDIATOR}/metrics", token), "llm_remediation_in_progress", target=HUNG)
        uptime = time.time() - float(str(states[HUNG].get("since") or time.time()))
        if all(t["state"] == "busy" for t in states.values()) and not sum(acting.values()) and uptime > 5:
            for name, found in states.items():
                print(f"          {name}: {found['sentence']}")
            return
        if time.monotonic() - begin > 90:
            raise NotProvedError("; ".join(f"{name} is {t['state']}: {t['sentence']}" for name, t in states.items()))
        time.sleep(0.5)


def watch(line: Timeline, token: str, before: str, known: dict[str, float]) -> str:
    """Follow the story until the restart is verified; the outcome's name. `NotProvedError` at the deadline."""
    while line.seconds < DEADLINE:
        try:
            hung, busy = target(HUNG), target(BUSY)
            line.changed("hung", hung["state"], f"{HUNG}: {hung['sentence']}")
            line.changed("busy", busy["state"], f"{BUSY}: {busy['sentence']}")
            if hung["state"] == "stuck" and firing(HUNG):
                line.changed("alert", True, f"Alertmanager: LLMEngineStuck of {HUNG} fires")
            gates = metric(get(f"{REMEDIATOR}/metrics", token), "llm_remediation_in_progress", target=HUNG)
            if sum(gates.values()):
                line.changed("acting", True, f"remediator: restarts {HUNG}, every gate passed")
            if (now := started_at(HUNG)) != before:
                line.changed("start", now, f"Docker: the container of {HUNG} was started anew")
            new = {name for name, count in outcomes(token).items() if count > known.get(name, 0)}
        except (urllib.error.URLError, OSError) as error:
            line.changed("error", str(error), f"(no answer: {error})")
            time.sleep(0.5)
            continue
        if new:
            outcome = sorted(new)[0]
            line.say(f"remediator: {outcome}")
            return outcome
        time.sleep(0.3)
    raise NotProvedError(f"no verified restart within {DEADLINE:.0f} s")


def busy_again() -> bool:
    """Whether the hung engine is busy now, or soon: one look may fall into a pause of the machine itself."""
    for _ in range(30):
        if target(HUNG)["state"] == "busy":
            return True
        time.sleep(1)
    return False


def main() -> int:
    """Hang, watch, judge."""
    token = docker("exec", container("remediator"), "cat", "/run/stuckproof/token")
    wait_for_calm(token)
    before = {name: started_at(name) for name in (HUNG, BUSY)}
    sent, known = canaries(BUSY), outcomes(token)

    line = Timeline()
    line.know(hung="busy", busy="busy")
    docker("exec", container(HUNG), "python", "-m", "llm_sim.fault", "hang")
    line.say(f"the engine process of {HUNG} is stopped (SIGSTOP); its /health still answers 200")
    outcome = watch(line, token, before[HUNG], known)

    restarted = started_at(HUNG)
    time.sleep(CALM_AFTERWARDS)
    flows = busy_again()
    line.say(f"{HUNG}: {target(HUNG)['sentence']}")
    line.say(f"{BUSY}: {target(BUSY)['sentence']}")
    new = {name: count - known.get(name, 0) for name, count in outcomes(token).items() if count > known.get(name, 0)}
    checks = {
        f"{HUNG} was restarted through the Docker API": restarted != before[HUNG],
        "exactly once": started_at(HUNG) == restarted and sum(v for k, v in new.items() if k != "recovered") == 1,
        "work flows again": outcome in GOOD and flows,
        f"{BUSY}, saturated, was not restarted": started_at(BUSY) == before[BUSY],
        f"and {BUSY} was sent no request": canaries(BUSY) == sent,
    }
    print()
    for what, true in checks.items():
        print(f"  {'yes' if true else 'NO '}  {what}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (NotProvedError, urllib.error.URLError, OSError) as failure:
        print(f"error: {failure}. Is the stack up? 'make run' brings it up; 'docker ps' shows it.", file=sys.stderr)
        sys.exit(1)
