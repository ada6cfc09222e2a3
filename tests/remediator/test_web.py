from __future__ import annotations

import asyncio
import gzip
import io
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer, unused_port

from llm_common.web import serve
from llm_remediator import web as web_module
from llm_remediator.origin import BrowserGuard
from llm_remediator.web import RemediatorWeb
from remediator.fake_service import NOW, OVERVIEW, FakeService, decision, target
from remediator.test_webhook import body

Client = TestClient[Any, Any]


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
async def http(service: FakeService) -> AsyncIterator[Client]:
    app = RemediatorWeb(service, BrowserGuard(["stuckproof.example.com"]), "{}\n").app()
    async with TestClient(TestServer(app)) as client:
        yield client


# --- the webhook


async def test_stored_then_202(http: Client, service: FakeService) -> None:
    answer = await http.post("/api/v1/alerts", json=body(truncatedAlerts=2))
    assert answer.status == 202
    assert await answer.json() == {"accepted": 1, "truncated": 2}
    assert service.deliveries[0].alerts[0].target == "a"


async def test_503_only_when_it_cannot_store(http: Client, service: FakeService) -> None:
    service.broken = "disk full"
    answer = await http.post("/api/v1/alerts", json=body())
    assert answer.status == 503
    assert "disk full" in (await answer.json())["error"]


async def test_what_is_not_alertmanager_gets_a_400_with_words(http: Client, service: FakeService) -> None:
    answer = await http.post("/api/v1/alerts", data=b'{"version": "3"}')
    assert answer.status == 400
    assert "version is '3'" in (await answer.json())["error"]
    assert not service.deliveries


async def test_a_body_over_4_mib_is_413(http: Client, service: FakeService) -> None:
    answer = await http.post("/api/v1/alerts", data=io.BytesIO(b" " * (4 * 1024 * 1024 + 1)))
    assert answer.status == 413
    assert "max_alerts" in (await answer.json())["error"]
    just_below = json.dumps(body()).encode()
    answer = await http.post("/api/v1/alerts", data=io.BytesIO(just_below + b" " * (4 * 1024 * 1024 - len(just_below))))
    assert answer.status == 202


@pytest.mark.parametrize("compressed", [gzip.compress(b" " * (64 * 1024 * 1024)), b"not gzip"])
async def test_a_compressed_body_is_refused_unread(http: Client, service: FakeService, compressed: bytes) -> None:
    answer = await http.post("/api/v1/alerts", data=compressed, headers={"Content-Encoding": "gzip"})
    assert answer.status == 415
    assert not service.deliveries


async def test_a_slow_sender_is_cut_off(http: Client, service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_module, "BODY_TIMEOUT", 0.05)

    async def drip() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(5)
        yield b"}"

    answer = await http.post("/api/v1/alerts", data=drip())
    assert answer.status == 408
    assert not service.deliveries


async def test_too_many_bodies_at_once_are_503_which_is_tried_again(
    http: Client, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_module, "MOST_BODIES", 0)
    assert (await http.post("/api/v1/alerts", json=body())).status == 503


async def test_a_flood_is_503(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_module, "MOST_A_SECOND", 3)
    now = 7.5
    app = RemediatorWeb(service, BrowserGuard(), "", monotonic=lambda: now).app()
    async with TestClient(TestServer(app)) as http:
        codes = [(await http.post("/api/v1/alerts", json=body())).status for _ in range(5)]
        assert codes == [202, 202, 202, 503, 503]
        now = 8.5
        assert (await http.post("/api/v1/alerts", json=body())).status == 202


async def test_a_sender_that_hangs_up_early_does_not_undo_the_storing(http: Client, service: FakeService) -> None:
    raw = json.dumps(body()).encode()
    reader, writer = await asyncio.open_connection(http.host, http.port)
    writer.write(b"POST /api/v1/alerts HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw)
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    for _ in range(200):
        if service.deliveries:
            break
        await asyncio.sleep(0.01)
    assert len(service.deliveries) == 1
    reader.feed_eof()


# --- reading


async def test_decisions_are_json_without_nan(http: Client, service: FakeService) -> None:
    answer = await http.get("/api/v1/decisions", params={"target": "a", "since": "5", "limit": "3"})
    (found,) = json.loads(await answer.text(), parse_constant=lambda c: pytest.fail(c))["decisions"]
    assert found["evidence"]["bad"] is None
    assert found["gates"][1] == {"name": "proof", "passed": False, "text": "it progresses"}
    assert service.calls == [("decisions", "a", 5.0, 3)]
    for query in ({"limit": "0"}, {"limit": "1001"}, {"since": "x"}, {"since": "nan"}):
        assert (await http.get("/api/v1/decisions", params=query)).status == 400


async def test_targets_and_explain(http: Client, service: FakeService) -> None:
    service.views = [target("a"), target("b/c:8000")]
    listed = (await (await http.get("/api/v1/targets")).json())["targets"]
    assert [t["name"] for t in listed] == ["a", "b/c:8000"]
    assert (await http.get("/api/v1/targets/b%2Fc:8000")).status == 200
    found = await (await http.get("/api/v1/targets/b%2Fc:8000/explain")).json()
    assert found["decision"] == "skip"
    answer = await http.get("/api/v1/targets/nope/explain")
    assert answer.status == 404
    assert "remediator.yml" in (await answer.json())["error"]


async def test_health_and_readiness(http: Client, service: FakeService) -> None:
    assert (await http.get("/-/healthy")).status == 200
    service.health = (False, "the worker died")
    answer = await http.get("/-/ready")
    assert answer.status == 503
    assert "the worker died" in await answer.text()


async def test_security_headers_are_on_everything(http: Client) -> None:
    for path in ("/", "/api/v1/targets", "/nope", "/metrics"):
        headers = (await http.get(path)).headers
        assert headers["X-Frame-Options"] == "DENY"
        assert "default-src 'none'" in headers["Content-Security-Policy"]


# --- changing


async def test_pause_always_has_an_end(http: Client, service: FakeService) -> None:
    answer = await http.post("/api/v1/targets/a/pause", json={"for": "2h", "reason": "maintenance", "by": "kim"})
    assert (await answer.json())["paused_until"] == NOW + 7200
    assert service.calls[-1][:4] == ("pause", "a", 7200.0, "maintenance")
    assert service.calls[-1][4].startswith("kim from ")
    await http.post("/api/v1/pause")
    assert service.calls[-1][:3] == ("pause", None, 3600.0)
    for bad in ("0", "31d", "for ever", "-1h"):
        assert (await http.post("/api/v1/pause", json={"for": bad})).status == 400, bad


async def test_resume_rearm_drill(http: Client, service: FakeService) -> None:
    assert (await http.post("/api/v1/resume", json={})).status == 200
    answer = await http.post("/api/v1/targets/a/rearm", json={})
    assert answer.status == 409
    assert "not latched" in (await answer.json())["error"]
    service.views = [target("a", latched=True)]
    assert (await http.post("/api/v1/targets/a/rearm", json={})).status == 200
    assert (await http.post("/api/v1/targets/a/drill", json={})).status == 200
    assert [c[0] for c in service.calls] == ["resume", "rearm", "drill"]
    assert (await http.post("/api/v1/targets/nope/pause", json={})).status == 404


async def test_approval_is_a_named_persons(http: Client, service: FakeService) -> None:
    path = "/api/v1/targets/a/approve"
    answer = await http.post(path, json={"by": "kim"})
    assert answer.status == 409
    assert "nothing awaits approval" in (await answer.json())["error"]
    service.views = [target("a", awaiting_approval="restart awaits a person's approval: stuck", approval_request=7)]
    for bad in ({}, {"by": " "}, {"by": "kim", "request": "x"}, {"by": "kim", "request": "9" * 30}, {"by": 3}):
        assert (await http.post(path, json=bad)).status == 400, bad
    answer = await http.post(path, json={"by": "kim", "request": "7"})
    assert (await answer.json())["approved_until"] == NOW + 900
    (call,) = service.calls
    assert call[:3] == ("approve", "a", 7)
    assert call[3].startswith("kim from ")
    assert (await http.post("/api/v1/targets/nope/approve", json={"by": "kim"})).status == 404


async def test_the_page_asks_who_approves_what(http: Client, service: FakeService) -> None:
    service.views = [
        target("a"),
        target("b", awaiting_approval="restart awaits a person's approval: stuck", approval_request=7),
    ]
    front = await (await http.get("/")).text()
    assert 'href="/confirm/approve?target=b"' in front
    assert 'href="/confirm/approve?target=a"' not in front
    assert "A person decides: restart awaits" in front
    form = await (await http.get("/confirm/approve?target=b")).text()
    assert "restart awaits a person&#x27;s approval: stuck" in form
    assert '<input type="hidden" name="request" value="7">' in form
    assert '<input name="by" maxlength="100" autocomplete="name" required>' in form
    assert (await http.get("/confirm/approve?target=a")).status == 409
    assert (await http.get("/confirm/approve")).status == 400


@pytest.mark.parametrize(
    ("headers", "data"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, None),
        ({"Origin": "http://evil.example"}, None),
        ({"Origin": "null"}, None),
        ({"Origin": "http://["}, None),
        ({"Host": "[", "Origin": "http://["}, None),
        ({"Host": "[", "Sec-Fetch-Site": "none"}, None),
        ({"Content-Type": "text/plain"}, b'{"for": "1h"}'),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"for=1h"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"for=1h&csrf=guess"),
        ({"Host": "evil.example:10141", "Origin": "http://evil.example:10141"}, None),
    ],
)
async def test_another_sites_page_cannot_press_our_buttons(
    http: Client, service: FakeService, headers: dict[str, str], data: bytes | None
) -> None:
    answer = await http.post("/api/v1/pause", headers=headers, data=data)
    assert answer.status == 403, await answer.text()
    assert not service.calls


async def test_bodies_of_a_wrong_shape_are_400(http: Client, service: FakeService) -> None:
    long = b'{"for": "' + b"9" * 400 + b'd"}'
    odd = (b'{"duration": "8h"}', b'{"by": "\\ud800"}', long)
    for raw in (b"[]", b"{", b'{"for": 3}', b"[" * 100_000, *odd):
        answer = await http.post("/api/v1/pause", data=raw, headers={"Content-Type": "application/json"})
        assert answer.status in (400, 413), raw[:10]
    assert not service.calls


@pytest.mark.parametrize("charset", ["nonsense", "base64"])
async def test_a_form_in_an_unknown_character_set_is_400(http: Client, service: FakeService, charset: str) -> None:
    kind = {"Content-Type": f"application/x-www-form-urlencoded; charset={charset}"}
    assert (await http.post("/api/v1/pause", data=b"for=1h", headers=kind)).status == 400
    assert not service.calls


async def test_the_page_pauses_without_scripts(http: Client, service: FakeService) -> None:
    """Follow the link as a browser does: button, form with a token and a cookie, POST, back to the page."""
    service.views = [target("a/b")]
    front = await (await http.get("/")).text()
    link = re.search(r'href="(/confirm/pause\?target=[^"]+)"', front)
    assert link is not None
    form = await (await http.get(link[1])).text()
    action = re.search(r'<form method="post" action="([^"]+)"', form)
    token = re.search(r'name="csrf" value="([^"]+)"', form)
    assert action is not None
    assert token is not None
    origin = str(http.make_url("")).rstrip("/")
    fields = {"csrf": token[1], "for": "30m", "reason": "x", "by": "kim"}
    answer = await http.post(
        action[1], data=fields, allow_redirects=False, headers={"Origin": origin, "Sec-Fetch-Site": "same-origin"}
    )
    assert answer.status == 303, await answer.text()
    assert answer.headers["Location"] == "/"
    assert service.calls[-1][:3] == ("pause", "a/b", 1800.0)
    async with aiohttp.ClientSession() as stranger:  # the token without the cookie is worth nothing
        answer = await stranger.post(http.make_url(action[1]), data=fields, allow_redirects=False)
        assert answer.status == 403


async def test_the_page_shows_all_there_is_and_escapes_it(http: Client, service: FakeService) -> None:
    evil = '<script>alert("x")</script>'
    service.view = replace(
        OVERVIEW, mode="observe", mode_reason="journal broken", paused_until=NOW, trigger="exporter", warnings=(evil,)
    )
    service.views = [
        target("a", sentence=evil, latched=True, latch_reason=evil, foreign_owner=evil, warnings=(evil,), next_action=evil)
    ]
    service.stored = [decision(text=evil, target=evil, reason=evil, evidence={evil: evil})]
    for path in ("/", "/targets/a"):
        page = await (await http.get(path)).text()
        assert "<script" not in page
        assert "&lt;script&gt;" in page
    front = await (await http.get("/")).text()
    for words in ("journal broken", "silences are not honoured", "All paused until", "Re-arm…", "gpu-2: does not answer"):
        assert words in front
    shown = await (await http.get("/targets/a")).text()
    for words in ("refuses", "passes", "not asked"):
        assert words in shown
    assert (await http.get("/confirm/rearm")).status == 400
    assert (await http.get("/confirm/pause?target=nope")).status == 404


# --- credentials, as the common web server checks them


async def test_credentials_guard_all_but_health_and_401_is_counted(service: FakeService, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret")
    config = tmp_path / "web.yml"
    config.write_text(f"bearer_token_file: {tmp_path}/token\n")
    app = RemediatorWeb(service, BrowserGuard(credentials=True), "").app()
    port = unused_port()
    runner = await serve(app, [f"127.0.0.1:{port}"], str(config))
    base = f"http://127.0.0.1:{port}"
    good = {"Authorization": "Bearer s3cret"}
    try:
        async with aiohttp.ClientSession() as http:
            assert (await http.post(f"{base}/api/v1/alerts", json=body())).status == 401
            for path in ("/", "/metrics", "/api/v1/targets", "/config"):
                assert (await http.get(base + path)).status == 401, path
            assert (await http.get(f"{base}/-/healthy")).status == 200
            assert (await http.post(f"{base}/api/v1/alerts", json=body(), headers=good)).status == 202
            text = await (await http.get(f"{base}/metrics", headers=good)).text()
            assert 'llm_remediation_webhook_requests_total{code="401"} 1.0' in text
            assert 'llm_remediation_webhook_requests_total{code="202"} 1.0' in text
    finally:
        await runner.cleanup()
