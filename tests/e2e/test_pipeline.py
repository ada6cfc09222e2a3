"""A stuck engine is restarted exactly once, a busy one never: real Docker Engine, Compose, Prometheus, Alertmanager.

The bounds are the demo's (deploy/compose/exporter.yml): seconds instead of minutes, everything else as in production.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from e2e.harness import BUSY, HUNG, SETTINGS, Stack, wait_for
from llm_common.config import parse_duration

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

_defaults = yaml.safe_load((SETTINGS / "exporter.yml").read_text())["defaults"]
INTERVAL = parse_duration(_defaults["interval"])
BOUND = parse_duration(_defaults["stuck_after"])
CANARY = parse_duration(_defaults["canary"]["timeout"])
DETECTED_WITHIN = BOUND + CANARY + 2 * INTERVAL


@pytest.fixture(autouse=True)
def _neighbour_untouched(stack: Stack) -> Iterator[None]:
    """Whatever a test does to one engine: the saturated one is neither started anew nor sent a request."""
    before, asked = stack.incarnation(BUSY), stack.canaries(BUSY)
    yield
    assert stack.incarnation(BUSY) == before
    # The exporter's counters begin anew where a test restarts it: never more than before, then.
    assert stack.canaries(BUSY) <= asked
    assert stack.outcomes(BUSY) == {}


def hang_until_stuck(stack: Stack) -> float:
    """Stop the engine process of an engine that holds work, until it is stuck; when it was stopped."""
    stopped = stack.fault("hang")
    wait_for(f"{HUNG} is stuck", DETECTED_WITHIN + 10, lambda: stack.target(HUNG)["state"] == "stuck")
    return stopped


@contextmanager
def stuck_while_paused(stack: Stack) -> Iterator[None]:
    """The engine is stuck and Alertmanager has the alert, but the remediator was told not to act yet."""
    stack.settle()
    assert stack.remediator("POST", f"/api/v1/targets/{HUNG}/pause", {"for": "5m", "reason": "e2e"}).status == 200
    try:
        hang_until_stuck(stack)
        wait_for("the alert is active", 30, lambda: stack.restart_alerts() or None)
        yield
    finally:
        stack.fault("continue")
        # 409: the test itself has ended the pause.
        assert stack.remediator("POST", f"/api/v1/targets/{HUNG}/resume", {}).status in (200, 409)


def resume(stack: Stack) -> float:
    """End the pause; when that was."""
    assert stack.remediator("POST", f"/api/v1/targets/{HUNG}/resume", {}).status == 200
    return time.time()


def test_a_saturated_engine_is_left_alone(stack: Stack) -> None:
    stack.settle()
    begin, asked = time.time(), stack.canaries(BUSY)
    while time.time() < begin + 3 * BOUND:
        found = stack.target(BUSY)
        assert found["state"] == "busy", found["sentence"]
        assert found["held"] > 12, "not saturated: every slot busy and some waiting"
        time.sleep(0.5)
    assert not stack.ask(BUSY, timeout=3), "a request would not have waited: this proves nothing"
    # One may have been sent before its clients came: it was idle then.
    assert stack.canaries(BUSY) == asked
    assert stack.starts(BUSY, begin) == 0
    assert stack.restart_alerts(BUSY) == []
    assert stack.decisions(begin, BUSY) == []


def test_b_hung_engine_is_restarted_once_and_verified(stack: Stack) -> None:
    stack.settle()
    before, known = stack.incarnation(HUNG), stack.outcomes()
    stopped = hang_until_stuck(stack)
    assert stack.target(HUNG)["since"] - stopped <= DETECTED_WITHIN
    assert stack.target(HUNG)["native_health"] == 200, "the engine's own /health stays green through the hang"

    wait_for("the container is started anew", 60, lambda: stack.incarnation(HUNG) != before)
    wait_for(
        "work flows again, as the remediator sees it",
        60,
        lambda: (
            stack.outcomes().get("verified", 0) + stack.outcomes().get("recovered", 0)
            > known.get("verified", 0) + known.get("recovered", 0)
        ),
    )
    wait_for(f"{HUNG} is busy", 30, lambda: stack.target(HUNG)["state"] == "busy")
    # max_over_time of a minute keeps the alert: it must end, and must not have caused another restart meanwhile.
    wait_for("the alert is resolved", 120, lambda: not stack.restart_alerts(), every=1)
    assert stack.starts(HUNG, stopped) == 1
    assert [d for d in stack.decisions(stopped) if d["decision"] == "act"], "no decision to act was recorded"


def test_c_fifty_duplicates_and_two_kills_make_one_restart(stack: Stack) -> None:
    stack.settle()
    before = stack.incarnation(HUNG)
    stopped = hang_until_stuck(stack)
    with ThreadPoolExecutor(50) as pool:
        first = stack.post_webhooks(pool, 25)
        stack.kill_remediator()
        second = stack.post_webhooks(pool, 25)
        codes = [f.result() for f in first + second]
    assert set(codes) <= {202, 0}, codes
    assert codes.count(202) >= 25, codes

    wait_for("the container is started anew", 60, lambda: stack.incarnation(HUNG) != before, every=0.05)
    stack.kill_remediator()
    wait_for(f"{HUNG} is busy", 60, lambda: stack.target(HUNG)["state"] == "busy")
    with ThreadPoolExecutor(50) as pool:
        late = [f.result() for f in stack.post_webhooks(pool, 50)]
    assert set(late) == {202}, late
    wait_for("the attempt is closed", 90, lambda: stack.gauge("llm_remediation_in_progress") == 0)
    time.sleep(5 * INTERVAL)
    assert stack.starts(HUNG, stopped) == 1
    acts = [d for d in stack.decisions(stopped) if d["decision"] == "act"]
    assert [d["outcome"] in ("verified", "recovered") for d in acts] == [True], acts


def test_d_progress_before_the_action_is_a_refusal(stack: Stack) -> None:
    begin = time.time()
    with stuck_while_paused(stack):
        stack.fault("continue")
        wait_for(f"{HUNG} moves again", 30, lambda: stack.target(HUNG)["state"] == "busy")
        assert stack.restart_alerts(), "the alert must still fire: it is what has to be refused"
        resumed = resume(stack)
        assert stack.remediator("POST", "/api/v1/alerts", stack.webhook()).status == 202
        refusal = wait_for("a refusal with the reason", 20, lambda: refused(stack, resumed))
    assert "busy" in refusal["text"], refusal
    assert stack.starts(HUNG, begin) == 0


def test_e_without_the_exporter_nothing_is_restarted(stack: Stack) -> None:
    begin = time.time()
    with stuck_while_paused(stack):
        stack.docker("stop", "--time", "5", stack.container("exporter"))
        try:
            resumed = resume(stack)
            assert stack.remediator("POST", "/api/v1/alerts", stack.webhook()).status == 202
            refusal = wait_for("a refusal with the reason", 30, lambda: refused(stack, resumed))
            time.sleep(5 * INTERVAL)
            assert not [d for d in stack.decisions(resumed) if d["decision"] == "act"]
        finally:
            stack.fault("continue")
            stack.docker("start", stack.container("exporter"))
    assert "exporter" in refusal["text"], refusal
    wait_for("the exporter is back", 60, lambda: stack.target(HUNG)["state"] == "busy")
    assert stack.starts(HUNG, begin) == 0


def refused(stack: Stack, since: float) -> dict[str, Any] | None:
    """The newest decision not to act, if any."""
    return next((d for d in stack.decisions(since) if d["decision"] in ("skip", "defer")), None)


def test_webhook_without_the_token_is_refused(stack: Stack) -> None:
    assert stack.remediator("POST", "/api/v1/alerts", stack.webhook(), token="wrong").status == 401
    assert stack.remediator("GET", "/-/healthy", token="").status == 200


ASK_PROXY = """
import http.client, sys
connection = http.client.HTTPConnection("docker-proxy", 2375, timeout=10)
connection.request(sys.argv[1], sys.argv[2])
answer = connection.getresponse()
print(answer.status, answer.read().decode()[:300])
"""


def test_the_socket_proxy_restarts_engines_and_creates_nothing(stack: Stack) -> None:
    def ask(method: str, path: str) -> str:
        return stack.docker("exec", stack.container("remediator"), "python3", "-c", ASK_PROXY, method, path)

    exporter = stack.incarnation("exporter")
    assert ask("GET", "/containers/json").startswith("200 ")
    for path in ("/containers/create", f"/containers/{exporter.split()[0]}/exec", f"/containers/{exporter.split()[0]}/kill"):
        assert ask("POST", path).startswith("403 "), path
    assert ask("POST", f"/containers/{exporter.split()[0]}/restart?t=1").startswith("403 "), "it has no label that allows it"
    assert stack.incarnation("exporter") == exporter
