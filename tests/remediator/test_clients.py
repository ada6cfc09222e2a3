"""Exporter, Alertmanager and notices over real HTTP: what is refused, what is ambiguous, what was never sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

from llm_remediator.alertmanager_client import HttpAlertmanager, alert_time, read_alert
from llm_remediator.config import Endpoint
from llm_remediator.exporter_client import HttpExporter, read_proof, read_report
from llm_remediator.http_client import JsonClient
from llm_remediator.notify import GrafanaNotifier, WebhookNotifier
from llm_remediator.outcome import Status
from llm_remediator.ports import Notice

Reply = Callable[[web.Request], Any]


@contextlib.asynccontextmanager
async def serving(reply: Reply) -> AsyncIterator[str]:
    async def handle(request: web.Request) -> web.StreamResponse:
        answer = reply(request)
        if asyncio.iscoroutine(answer):
            answer = await answer
        return answer if isinstance(answer, web.StreamResponse) else web.json_response(answer)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


REPORT: dict[str, Any] = {
    "name": "a/b",
    "url": "http://vllm:8000",
    "kind": "vllm",
    "state": "stuck",
    "since": 5.0,
    "reason": "flat",
    "sentence": "stuck: 3 held",
    "progress": 0,
    "held": 3,
    "up": True,
    "ready": False,
    "process_started": None,
    "incarnation": None,
    "last_unserved": 4,
    "canary_available": True,
    "lanes": [],
    "something_new": 1,
}
PROOF: dict[str, Any] = {
    "target": "a/b",
    "state": "stuck",
    "sentence": "stuck",
    "reason": "flat",
    "observed_at": 100.0,
    "lane": "0",
    "progress": 0,
    "held": 3,
    "flat_since": 10.0,
    "evidence": [{"series": "x", "value": 1}],
}


# --- the exporter


async def test_a_target_with_a_slash_is_asked_for_by_its_whole_name() -> None:
    paths: list[str] = []

    def reply(request: web.Request) -> Any:
        paths.append(request.raw_path)
        return PROOF if request.method == "POST" else REPORT

    async with serving(reply) as url:
        exporter = HttpExporter(Endpoint(url))
        report = (await exporter.target("a/b")).get()
        proof = (await exporter.proof("a/b")).get()
        await exporter.close()
    assert paths == ["/api/v1/targets/a%2Fb", "/api/v1/targets/a%2Fb/proof"]
    assert (report.state, report.held, report.last_unserved, report.canary_available) == ("stuck", 3.0, 4.0, True)
    assert (proof.flat_since, proof.evidence[0]["series"]) == (10.0, "x")


async def test_another_targets_proof_is_no_proof() -> None:
    async with serving(lambda _: PROOF) as url:
        exporter = HttpExporter(Endpoint(url))
        outcome = await exporter.proof("other")
        await exporter.close()
    assert outcome.status is Status.REFUSED
    assert "asked for other" in outcome.detail


@pytest.mark.parametrize(
    "change",
    [
        {"state": None},
        {"state": "hung"},
        {"state": ["stuck"]},
        {"observed_at": None},
        {"observed_at": "now"},
        {"progress": 2},
        {"held": "3"},
        {"target": 7},
        {"evidence": [1]},
        {"evidence": 5},
    ],
)
def test_a_proof_with_anything_odd_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError, KeyError)):
        read_proof({**PROOF, **change})


def test_a_state_of_a_newer_exporter_is_refused_not_guessed() -> None:
    with pytest.raises(ValueError, match="limping"):
        read_report({**REPORT, "state": "limping"})
    with pytest.raises(KeyError):
        read_report({"name": "a"})


def test_nan_and_infinity_are_absent() -> None:
    assert read_proof({**PROOF, "flat_since": float("nan")}).flat_since is None
    assert read_report({**REPORT, "since": float("inf")}).since is None


HUGE_NUMBER = {**REPORT, **PROOF, "name": "a", "target": "a", "since": 10**400, "held": 10**400}
HUGE = json.dumps({**HUGE_NUMBER, "targets": [HUGE_NUMBER]})


@pytest.mark.parametrize(
    ("reply", "status", "says"),
    [
        (lambda _: web.json_response({"error": "no target a"}, status=404), Status.NOT_FOUND, "no target a"),
        (lambda _: web.Response(status=401, text="no"), Status.REFUSED, "bearer_token_file"),
        (lambda _: web.Response(status=500, text="oops"), Status.REFUSED, "500 oops"),
        (lambda _: web.Response(status=302, headers={"Location": "http://evil/"}), Status.REFUSED, "302"),
        (lambda _: web.Response(text="<html>"), Status.REFUSED, "no llm-exporter of this release (it sends no JSON object)"),
        (lambda _: web.Response(text=""), Status.REFUSED, "is the address right?"),
        (lambda _: [], Status.REFUSED, "it sends no JSON object"),
        (lambda _: {"status": "success"}, Status.REFUSED, "' is missing"),
        (lambda _: web.Response(text="[" * 100_000), Status.REFUSED, "it sends no JSON object"),
        (lambda _: web.Response(text=HUGE), Status.REFUSED, "too large"),
    ],
)
async def test_what_the_exporter_may_say(reply: Reply, status: Status, says: str) -> None:
    async with serving(reply) as url:
        exporter = HttpExporter(Endpoint(url))
        for outcome in (await exporter.targets(), await exporter.target("a"), await exporter.proof("a")):
            assert outcome.status is status
            assert says in outcome.detail
        await exporter.close()


async def test_silence_is_a_timeout_and_nobody_there_is_unavailable() -> None:
    async def sleep(_: web.Request) -> web.Response:
        await asyncio.sleep(5)
        return web.Response()

    async with serving(sleep) as url:
        client = JsonClient(Endpoint(url))
        assert (await client.call("POST", "/x", timeout=0.05)).status is Status.TIMED_OUT
        await client.close()
    client = JsonClient(Endpoint(f"http://127.0.0.1:{unused_port()}"))
    outcome = await client.call("POST", "/x", timeout=5)
    await client.close()
    assert outcome.status is Status.UNAVAILABLE
    assert "connection refused" in outcome.detail


async def test_a_connection_cut_after_a_post_is_ambiguous_after_a_get_it_is_not() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = JsonClient(Endpoint(f"http://127.0.0.1:{port}"))
    assert (await client.call("POST", "/x", timeout=5)).status is Status.TIMED_OUT
    assert (await client.call("GET", "/x", timeout=5)).status is Status.UNAVAILABLE
    await client.close()
    server.close()
    await server.wait_closed()


async def test_an_endless_body_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm_remediator.http_client._BODY_LIMIT", 100_000)
    async with serving(lambda _: web.Response(body=b" " * 200_000)) as url:
        client = JsonClient(Endpoint(url))
        outcome = await client.call("GET", "/x", timeout=5)
        await client.close()
    assert outcome.status is Status.REFUSED
    assert "larger than" in outcome.detail


async def test_secrets_are_read_at_each_call(tmp_path: Path) -> None:
    seen: list[str] = []

    def reply(request: web.Request) -> Any:
        seen.append(request.headers.get("Authorization", ""))
        return {}

    token = tmp_path / "token"
    async with serving(reply) as url:
        client = JsonClient(Endpoint(url, bearer_token_file=str(token)))
        missing = await client.call("GET", "/", timeout=5)
        assert missing.status is Status.REFUSED
        assert str(token) in missing.detail
        for text in ("one\n", "two\n"):
            token.write_text(text)
            assert (await client.call("GET", "/", timeout=5)).ok
        await client.close()
        basic = JsonClient(Endpoint(url, username="u", password_file=str(token)))
        await basic.call("GET", "/", timeout=5)
        await basic.close()
    assert seen == ["Bearer one", "Bearer two", "Basic dTp0d28="]


# --- Alertmanager

ALERT: dict[str, Any] = {
    "labels": {"alertname": "LLMEngineStuck", "target": "a", "remediate": "restart"},
    "annotations": {},
    "fingerprint": "f00",
    "startsAt": "2026-11-30T03:00:00.000Z",
    "receivers": [{"name": "remediator"}],
    "status": {"state": "active", "silencedBy": [], "inhibitedBy": [], "mutedBy": []},
}


def with_status(**status: Any) -> dict[str, Any]:
    return {**ALERT, "status": {**ALERT["status"], **status}}


async def test_all_alerts_for_machines_are_asked_for_suppressed_ones_too() -> None:
    queries: list[dict[str, str]] = []

    def reply(request: web.Request) -> Any:
        queries.append(dict(request.query))
        return [ALERT, with_status(state="suppressed", silencedBy=["s1"])]

    async with serving(reply) as url:
        client = HttpAlertmanager(Endpoint(f"{url}/prefix"))
        first, second = (await client.alerts()).get()
        await client.close()
    assert queries == [
        {"active": "true", "silenced": "true", "inhibited": "true", "unprocessed": "true", "filter": 'remediate="restart"'}
    ]
    assert (first.target, first.firing) == ("a", True)
    assert (second.firing, second.silenced_by) == (False, ("s1",))


def test_silenced_inhibited_muted_and_unprocessed_do_not_fire() -> None:
    assert not read_alert(with_status(inhibitedBy=["x"])).firing
    assert not read_alert(with_status(mutedBy=["nights"])).firing
    assert not read_alert(with_status(state="unprocessed")).firing


@pytest.mark.parametrize("status", [{"state": "odd"}, {"silencedBy": None}, {"inhibitedBy": None}])
def test_a_status_that_cannot_be_read_is_never_not_silenced(status: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError, KeyError)):
        read_alert(with_status(**status))
    with pytest.raises(KeyError):
        read_alert({k: v for k, v in ALERT.items() if k != "status"})


async def test_what_is_no_alertmanager_is_refused() -> None:
    async with serving(lambda _: {"alerts": []}) as url:
        client = HttpAlertmanager(Endpoint(url))
        outcome = await client.alerts()
        await client.close()
    assert outcome.status is Status.REFUSED
    assert "what answers is no Alertmanager (not a list of alerts)" in outcome.detail


def test_alert_times() -> None:
    assert alert_time("1970-01-01T00:00:01Z") == 1.0
    for none in ("0001-01-01T00:00:00Z", "2026-11-30T03:00:00", "", None, 5):
        assert alert_time(none) is None, none


# --- people


async def test_a_notice_is_one_json_post_and_a_refusal_is_told() -> None:
    bodies: list[Any] = []

    async def reply(request: web.Request) -> Any:
        bodies.append((request.path, await request.json()))
        return web.Response(text="ok") if len(bodies) < 3 else web.Response(status=500, text="full")

    notice = Notice("latched", "a", "given up: 3 restarts did not mend it", 5.0, "act", 7, {"x": 1})
    async with serving(reply) as url:
        hook, grafana = WebhookNotifier(Endpoint(f"{url}/hook")), GrafanaNotifier(Endpoint(url))
        assert (await hook.notify(notice)).ok
        assert (await grafana.notify(notice)).ok
        refused = await hook.notify(notice)
        await hook.close()
        await grafana.close()
    assert bodies[0][0] == "/hook"
    assert bodies[0][1]["text"] == notice.text
    assert bodies[0][1]["details"] == {"x": 1}
    assert bodies[1] == (
        "/api/annotations",
        {"time": 5000, "tags": ["stuckproof", "latched", "target:a"], "text": notice.text},
    )
    assert refused.status is Status.REFUSED


async def test_the_path_of_an_incoming_webhook_is_a_secret() -> None:
    hook = WebhookNotifier(Endpoint(f"http://127.0.0.1:{unused_port()}/services/T0/B0/secret"))
    outcome = await hook.notify(Notice("acted", "a", "text", 5.0, "act"))
    await hook.close()
    assert outcome.status is Status.UNAVAILABLE
    assert "127.0.0.1" in outcome.detail
    assert "secret" not in outcome.detail


async def test_what_does_not_speak_http_is_one_short_sentence() -> None:
    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(bytes(range(256)) * 40)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(garbage, "127.0.0.1", 0)
    async with server:
        client = JsonClient(Endpoint(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        outcome = await client.call("GET", "/api/v1/overview", timeout=5)
        await client.close()
    assert "does not speak HTTP" in outcome.detail
    assert len(outcome.detail) < 200
