"""The incident scraped live by a real Prometheus, alerts sent to a real Alertmanager: who fired when, and who heard of it.

One minute of the incident takes 1.5 s: every duration in the rules is shortened by the same factor, nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import yaml

from rules import incident
from rules.backfill import JOBS
from rules.scenes import RULES
from rules.servers import alertmanager, get, prometheus, until
from rules.shorten import shortened_rules
from rules.spans import spans
from rules.test_alertmanager import CONFIG, Webhooks

SPEED = 40.0
LENGTH = 33.0
"""Minutes of the incident that are played."""

EXPECTED = {
    ("LLMEngineStalled", "hangs"): [(12.5, 16.0)],
    ("LLMEngineStuck", "hangs"): [(15.0, 17.0)],
    ("LLMHealthEndpointLies", "hangs"): [(16.0, 17.0)],
    ("LLMRemediationInProgress", "hangs"): [(16.0, 20.5)],
    ("LLMEngineFailed", "broken"): [(10.0, 13.0), (17.0, LENGTH)],
    ("LLMRemediationInProgress", "broken"): [(12.0, 29.0)],
    ("LLMRemediationFailed", "broken"): [(28.0, LENGTH)],
    ("LLMRemediationLatched", "broken"): [(28.0, LENGTH)],
    ("LLMTargetNotServing", "broken"): [(28.0, LENGTH)],
}
"""Alert and target -> the minutes in which it fires. Nothing fires for `full`, `sleeps` and `blind`."""
TOLERANCE = 2.0

pytestmark = pytest.mark.timeout(180)


class Player:
    """Serves the incident as it goes on: `/llm-exporter` and `/llm-remediator`."""

    def __init__(self) -> None:
        self.began = time.time()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = outer.page(self.path.strip("/")).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def minute(self, unix: float) -> float:
        return (unix - self.began) * SPEED / 60

    def page(self, job: str) -> str:
        now = time.time()
        t = self.minute(now) * 60
        serve = JOBS[job][1]
        return "".join(incident.render(s) + "\n" for s in serve(t, lambda moment: now - (t - moment)))

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@dataclass(frozen=True)
class Played:
    """What came of it."""

    fired: dict[tuple[str, str], list[tuple[float, float]]]
    machine: list[dict[str, Any]]
    page: list[dict[str, Any]]
    descriptions: dict[str, str]
    broken: list[str]
    """Rules whose evaluation failed, and how."""


def flat(alerts: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    """(alert, target, status) of every alert in these webhooks."""
    return {(a["labels"]["alertname"], a["labels"].get("target", ""), a["status"]) for b in alerts for a in b["alerts"]}


def watched(url: str) -> bool | None:
    """True when Prometheus scrapes both and no alert about a missing one is left."""
    up = get(f"{url}/api/v1/query", query="sum(up) == 2")["data"]["result"]
    return True if up and not get(f"{url}/api/v1/alerts")["data"]["alerts"] else None


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    home = tmp_path_factory.mktemp("live")
    (home / "alerts.yml").write_text(yaml.safe_dump(shortened_rules(SPEED)))
    (home / "token").write_text("t")
    (home / "templates").symlink_to(RULES / "templates")
    machine, page = Webhooks(), Webhooks()
    text = CONFIG.read_text().replace("http://remediator:10141", machine.url)
    text = text.replace("/run/stuckproof/token", str(home / "token")).replace("group_interval: 1m", "group_interval: 1s")
    text = text.replace("  - name: page\n", f"  - name: page\n    webhook_configs: [{{url: '{page.url}'}}]\n")
    text = text.replace("group_wait: 10s", "group_wait: 0s")
    (home / "alertmanager.yml").write_text(text)
    player = Player()
    try:
        with alertmanager(home / "am", home / "alertmanager.yml") as hub:
            config = {
                "global": {"scrape_interval": "300ms", "scrape_timeout": "300ms", "evaluation_interval": "300ms"},
                "rule_files": [str(home / "alerts.yml")],
                "alerting": {"alertmanagers": [{"static_configs": [{"targets": [hub.removeprefix("http://")]}]}]},
                "scrape_configs": [
                    {"job_name": job, "metrics_path": f"/{job}", "static_configs": [{"targets": [player.address]}]}
                    for job in JOBS
                ],
            }
            with prometheus(home / "prom", yaml.safe_dump(config), "--rules.alert.resend-delay=1s") as url:
                until(lambda: watched(url), "both are scraped and the start is over")
                player.began = time.time()
                descriptions: dict[str, str] = {}
                while player.minute(time.time()) < LENGTH:
                    for alert in get(f"{url}/api/v1/alerts")["data"]["alerts"]:
                        descriptions.setdefault(alert["labels"]["alertname"], alert["annotations"]["description"])
                    time.sleep(0.5)
                span = {"start": str(player.began), "end": str(time.time()), "step": "0.1"}
                found = get(f"{url}/api/v1/query_range", query='ALERTS{alertstate="firing"}', **span)["data"]["result"]
                fired = {
                    (line["metric"]["alertname"], line["metric"].get("target", "")): spans(
                        [player.minute(at) for at, _ in line["values"]], gap=1
                    )
                    for line in found
                }
                groups = get(f"{url}/api/v1/rules")["data"]["groups"]
                broken = [f"{r['name']}: {r.get('lastError')}" for g in groups for r in g["rules"] if r["health"] != "ok"]
        yield Played(fired, machine.bodies, page.bodies, descriptions, broken)
    finally:
        for server in (player, machine, page):
            server.close()


def test_the_alerts_fire_as_expected_and_no_others(played: Played) -> None:
    assert set(played.fired) == set(EXPECTED)
    for key, want in EXPECTED.items():
        got = played.fired[key]
        assert len(got) == len(want), (key, got)
        for (begins, ends), (begin, end) in zip(got, want, strict=True):
            assert abs(begins - begin) < TOLERANCE, (key, got)
            assert abs(ends - end) < TOLERANCE, (key, got)


def test_every_rule_could_be_evaluated(played: Played) -> None:
    assert played.broken == []


def test_the_machine_hears_of_the_hang_and_of_its_end_and_of_nothing_healthy(played: Played) -> None:
    heard = flat(played.machine)
    assert {("LLMEngineStuck", "hangs", "firing"), ("LLMEngineStuck", "hangs", "resolved")} <= heard
    assert {name for name, _, _ in heard} == {"LLMEngineStuck", "LLMEngineFailed"}
    assert {target for _, target, _ in heard} == {"hangs", "broken"}


def test_nobody_is_paged_for_what_the_machine_mended(played: Played) -> None:
    paged = {(name, target) for name, target, status in flat(played.page) if status == "firing"}
    assert paged == {
        ("LLMEngineFailed", "broken"),
        ("LLMRemediationFailed", "broken"),
        ("LLMRemediationLatched", "broken"),
        ("LLMTargetNotServing", "broken"),
    }


def test_every_text_is_rendered(played: Played) -> None:
    for alert, text in played.descriptions.items():
        assert "error" not in text, (alert, text)
        assert "<no value>" not in text, (alert, text)
        assert "{{" not in text, (alert, text)


def test_the_stuck_alert_says_mode_gate_cooldown_and_where_to_look(played: Played) -> None:
    text = played.descriptions["LLMEngineStuck"]
    assert text.startswith("hangs is stuck: 4 running, 9 waiting, no progress for 5m")
    assert "(bound 5m 0s). Remediator: mode act, next gate " in text
    assert text.endswith("https://llm.example/targets/hangs")
