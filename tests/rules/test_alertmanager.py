"""Routes by amtool; inhibition and delivery by a live Alertmanager."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules.scenes import RULES, alert_rules
from rules.servers import alertmanager, get, post, program, until

CONFIG = RULES / "alertmanager.yml"
ALERTS = alert_rules()
MACHINE = [a for a, rule in ALERTS.items() if rule["labels"].get("remediate")]


def amtool(*argv: str) -> str:
    done = subprocess.run([program("amtool"), *argv], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def labels_of(alert: str, **more: str) -> dict[str, str]:
    """An alert's labels as Prometheus would send them."""
    fixed = {k: v for k, v in ALERTS[alert]["labels"].items() if "{{" not in v}
    return {"alertname": alert, "cluster": "c", "namespace": "ml", "target": "a", "team": "none", **fixed, **more}


def receivers(labels: dict[str, str]) -> list[str]:
    out = amtool("config", "routes", "test", f"--config.file={CONFIG}", *(f"{k}={v}" for k, v in labels.items()))
    return out.strip().split(",")


def test_the_configuration_is_valid() -> None:
    assert "SUCCESS" in amtool("check-config", str(CONFIG))


def test_the_commented_examples_are_valid_too(tmp_path: Path) -> None:
    """Only what Alertmanager 0.25 does not know (`timeout`) stays a comment."""
    text = CONFIG.read_text()
    examples = re.sub(r"(?m)^(    )# (  )?(- |\w+_configs:|  )", r"\1\2\3", text)
    assert examples.count("_configs:") == text.count("_configs:")
    assert "    pagerduty_configs:" in examples
    config = tmp_path / "alertmanager.yml"
    config.write_text(examples)
    (tmp_path / "templates").symlink_to(RULES / "templates")
    parsed = yaml.safe_load(examples)
    assert [len(r) for r in parsed["receivers"]] == [2, 2, 2, 2, 1]
    assert "SUCCESS" in amtool("check-config", str(config))


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_goes_to_the_machine_only_if_it_may_and_to_people_by_severity(alert: str) -> None:
    people = {"critical": "page", "warning": "ticket", "info": "show-only"}[ALERTS[alert]["labels"]["severity"]]
    assert receivers(labels_of(alert)) == (["remediator"] if alert in MACHINE else []) + [people]


def test_a_team_gets_its_own_pages() -> None:
    assert receivers(labels_of("LLMEngineStuckUnattended", team="ml-platform")) == ["ml-platform-page"]
    assert receivers(labels_of("LLMEngineFailed", team="ml-platform")) == ["remediator", "ml-platform-page"]
    assert receivers(labels_of("LLMQueueGrowing", team="ml-platform")) == ["ticket"]


def test_the_machine_route_is_at_once_small_and_repeated() -> None:
    config = yaml.safe_load(CONFIG.read_text())
    route = config["route"]["routes"][0]
    assert route["matchers"] == ['remediate="restart"']
    assert route["continue"] is True
    assert (route["group_wait"], route["group_interval"], route["repeat_interval"]) == ("0s", "1m", "15m")
    assert route["group_by"] == ["alertname", "cluster", "target"]
    webhook = config["receivers"][0]["webhook_configs"][0]
    assert webhook["max_alerts"] == 50
    assert webhook["send_resolved"] is True


MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"(.*)"')


def matches(matchers: list[str], labels: dict[str, str]) -> bool:
    for text in matchers:
        found = MATCHER.fullmatch(text)
        assert found, text
        name, op, value = found.groups()
        has = labels.get(name, "")
        hit = bool(re.fullmatch(value, has)) if "~" in op else has == value
        if hit == op.startswith("!"):
            return False
    return True


def test_nothing_hides_what_the_machine_needs_or_says() -> None:
    """Except: no exporter; and the machine's own restart hides LLMTargetDown."""
    for rule in yaml.safe_load(CONFIG.read_text())["inhibit_rules"]:
        source = str(rule["source_matchers"])
        if "LLMHealthExporterDown" in source:
            assert not any(matches(rule["target_matchers"], labels_of(a)) for a in ALERTS if a.startswith("LLMRemediat"))
            continue
        assert 'target=~".+"' in rule["source_matchers"]
        assert 'target=~".+"' in rule["target_matchers"]
        assert rule["equal"] == ["cluster", "namespace", "target"]
        hidden = {a for a in ALERTS if matches(rule["target_matchers"], labels_of(a))}
        allowed = {"LLMTargetDown"} if "LLMRemediationInProgress" in source else set()
        assert not {a for a in hidden if a in MACHINE or a.startswith("LLMRemediat")} - allowed


def test_every_alert_that_an_inhibition_names_exists() -> None:
    for rule in yaml.safe_load(CONFIG.read_text())["inhibit_rules"]:
        for text in (*rule["source_matchers"], *rule["target_matchers"]):
            name, op, value = MATCHER.fullmatch(text).groups()  # type: ignore[union-attr]
            if name == "alertname" and op in {"=", "=~"}:
                for part in re.split(r"\|(?![^(]*\))", value):
                    assert any(re.fullmatch(part, alert) for alert in ALERTS), part


class Webhooks:
    """A receiver of webhooks on loopback that keeps what it gets."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.tokens: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.tokens.append(self.headers["Authorization"])
                outer.bodies.append(body)
                self.send_response(202)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def names(self) -> set[str]:
        return {alert["labels"]["alertname"] for body in self.bodies for alert in body["alerts"]}

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def webhooks() -> Iterator[Webhooks]:
    server = Webhooks()
    yield server
    server.close()


@pytest.fixture
def live(tmp_path: Path, webhooks: Webhooks) -> Iterator[str]:
    """A live Alertmanager with the shipped configuration; only the receiver's address and its token are ours."""
    token = tmp_path / "token"
    token.write_text("s3cret")
    text = CONFIG.read_text()
    for old, new in (("http://remediator:10141", webhooks.url), ("/run/stuckproof/token", str(token))):
        assert old in text
        text = text.replace(old, new)
    config = tmp_path / "alertmanager.yml"
    config.write_text(text)
    (tmp_path / "templates").symlink_to(RULES / "templates")
    with alertmanager(tmp_path, config) as url:
        yield url


def suppressed(url: str) -> dict[str, bool]:
    """Each active alert, and whether another one hides it."""
    found = get(f"{url}/api/v2/alerts")
    return {a["labels"]["alertname"]: bool(a["status"]["inhibitedBy"]) for a in found}


def send(url: str, *alerts: dict[str, str]) -> None:
    post(f"{url}/api/v2/alerts", [{"labels": a, "annotations": {}} for a in alerts])


def test_stuck_hides_its_symptoms_and_is_hidden_by_nothing(live: str, webhooks: Webhooks) -> None:
    names = ["LLMEngineStuck", "LLMEngineStuckUnattended", "LLMTargetNotServing", "LLMRemediationInProgress"]
    names += ["LLMRemediationSuppressed", "LLMQueueGrowing", "LLMEventLoopLag", "LLMFirstTokenBurnFast", "LLMPollStale"]
    send(live, *(labels_of(n) for n in names), labels_of("LLMGpuIdleWithQueue", target="other"))

    def settled() -> dict[str, bool] | None:
        found = suppressed(live)
        return found if len(found) == len(names) + 1 and found["LLMQueueGrowing"] else None

    found = until(settled, "the inhibitions are applied")
    assert not found["LLMEngineStuck"]
    assert not found["LLMEngineStuckUnattended"]
    assert not found["LLMRemediationSuppressed"]
    assert not found["LLMRemediationInProgress"]
    assert not found["LLMGpuIdleWithQueue"], "another target's alert"
    assert found["LLMEventLoopLag"]
    assert found["LLMFirstTokenBurnFast"]
    assert found["LLMPollStale"], "a critical alert hides the warnings of the same target"
    until(lambda: True if "LLMEngineStuck" in webhooks.names() else None, "the machine hears of it")
    assert webhooks.tokens[0] == "Bearer s3cret"
    assert webhooks.names() <= set(MACHINE), "the machine hears of nothing else"
    first = webhooks.bodies[0]
    assert (first["version"], first["groupLabels"]["target"]) == ("4", "a")


def test_a_restart_in_progress_hides_the_refused_port(live: str) -> None:
    send(live, *(labels_of(n) for n in ("LLMRemediationInProgress", "LLMTargetDown", "LLMEngineStuck", "LLMEngineFailed")))

    def settled() -> dict[str, bool] | None:
        found = suppressed(live)
        return found if len(found) == 4 and found["LLMTargetDown"] else None

    found = until(settled, "LLMTargetDown is hidden")
    assert not found["LLMEngineStuck"]
    assert not found["LLMEngineFailed"]


def test_no_exporter_hides_what_was_known_of_targets_only(live: str) -> None:
    down = {"alertname": "LLMHealthExporterDown", "severity": "critical", "cluster": "c", "namespace": "ml", "job": "x"}
    names = ("LLMEngineStuck", "LLMQueueGrowing", "LLMRemediationLatched")
    send(live, down, *(labels_of(n) for n in names), labels_of("LLMTargetDown", cluster="elsewhere"))

    def settled() -> dict[str, bool] | None:
        found = suppressed(live)
        return found if len(found) == 5 and found["LLMEngineStuck"] else None

    found = until(settled, "LLMEngineStuck is hidden while nobody watches")
    assert found["LLMQueueGrowing"]
    assert not found["LLMRemediationLatched"]
    assert not found["LLMTargetDown"], "another cluster's exporter is up"
    assert not found["LLMHealthExporterDown"]


def test_the_message_says_state_evidence_and_what_the_machine_does(tmp_path: Path) -> None:
    now = "2026-01-02T03:04:05Z"
    annotations = {"summary": "S.", "description": "a is stuck: 3 running.", "runbook_url": "http://r"}
    linked = annotations | {"target_url": "http://e/targets/a"}
    data = {
        "receiver": "x",
        "status": "firing",
        "commonLabels": {"alertname": "LLMEngineStuck", "target": "a"},
        "alerts": [
            {"status": status, "labels": labels_of(name), "annotations": texts, "startsAt": now, "endsAt": now}
            for status, name, texts in (
                ("firing", "LLMEngineStuck", annotations),
                ("firing", "LLMQueueGrowing", linked),
                ("resolved", "LLMTargetDown", linked),
            )
        ],
    }
    file = tmp_path / "data.json"
    file.write_text(json.dumps(data))
    text = amtool(
        "template",
        "render",
        f"--template.glob={RULES}/templates/*.tmpl",
        f"--template.data={file}",
        '--template.text={{ template "stuckproof.title" . }}\n{{ template "stuckproof.text" . }}',
    )
    assert text == (
        "[FIRING 2] LLMEngineStuck a\n"
        "WARNING LLMEngineStuck a, since 03:04:05 UTC\nS.\na is stuck: 3 running.\n"
        "Sent to the remediator too: it restarts this server if its mode, its restart_on and every gate allow it.\n"
        "Runbook: http://r\n\n"
        "WARNING LLMQueueGrowing a, since 03:04:05 UTC\nS.\na is stuck: 3 running.\n"
        "No machine acts on this alert.\nPage: http://e/targets/a\nRunbook: http://r\n\n"
        "RESOLVED LLMTargetDown a at 03:04:05 UTC (began 03:04:05)\n"
    )
