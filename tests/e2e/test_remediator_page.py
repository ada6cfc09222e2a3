"""The remediator's page in a real browser: buttons work without scripts of ours, nothing is injected, it fits a phone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from e2e.browser import Page, chromium
from llm_common.web import serve
from llm_remediator.origin import BrowserGuard
from llm_remediator.web import RemediatorWeb
from loopback import free_port
from remediator.fake_service import OVERVIEW, FakeService, decision, target

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
INJECTION = '"><img src=x onerror=alert(1)><script>document.title="owned"</script>'


@pytest.fixture
def service() -> FakeService:
    made = FakeService()
    made.view = replace(OVERVIEW, warnings=(INJECTION,))
    made.views = [target("llm/a", sentence=INJECTION), target("b", latched=True, latch_reason="3 starts did not mend it")]
    made.stored = [decision(text=INJECTION, evidence={INJECTION: [INJECTION]})]
    return made


@pytest.fixture
async def at(service: FakeService) -> AsyncIterator[tuple[Page, str]]:
    app = RemediatorWeb(service, BrowserGuard(), "").app()
    async with TestServer(app, host="127.0.0.1") as server, chromium() as page:
        yield page, str(server.make_url("")).rstrip("/")


async def click(page: Page, words: str) -> None:
    """A person's click on what reads so."""
    found = f"[...document.querySelectorAll('a, button')].find(e => e.innerText.trim() === {words!r})"
    await page.until(f"Boolean({found})")
    await page.follow(found)


def changes(service: FakeService) -> list[tuple[object, ...]]:
    return [call for call in service.calls if call[0] != "decisions"]


async def test_an_approval_by_a_named_person(at: tuple[Page, str], service: FakeService) -> None:
    page, base = at
    service.views = [target("c", awaiting_approval="restart awaits a person's approval: stuck", approval_request=7)]
    await page.open(f"{base}/")
    await click(page, "Approve…")
    assert "restart awaits a person's approval: stuck" in await page.value("document.body.innerText")
    assert await page.value("document.querySelector('form').checkValidity()") is False, "without a name it is not sent"
    await page.value("document.querySelector('[name=by]').value = 'kim'")
    await click(page, "Approve")
    assert await page.value("location.pathname") == "/"
    ((verb, name, request, by),) = changes(service)
    assert (verb, name, request) == ("approve", "c", 7)
    assert str(by).startswith("kim from 127.0.0.1")


async def test_a_pause_by_three_clicks(at: tuple[Page, str], service: FakeService) -> None:
    page, base = at
    await page.open(f"{base}/")
    await click(page, "Pause…")
    assert "Pause target llm/a?" in await page.value("document.body.innerText")
    await page.value("document.querySelector('[name=for]').value = '2h'")
    await page.value("document.querySelector('[name=by]').value = 'kim'")
    await click(page, "Pause")
    assert await page.value("location.pathname") == "/"
    (paused,) = changes(service)
    assert paused[:3] == ("pause", "llm/a", 7200.0)
    assert str(paused[4]).startswith("kim from 127.0.0.1")
    await click(page, "Re-arm…")
    await click(page, "Cancel")
    assert len(changes(service)) == 1
    await click(page, "Re-arm…")
    await click(page, "Re-arm")
    assert changes(service)[-1][:2] == ("rearm", "b")
    assert not page.errors, page.errors


async def test_a_browser_gets_in_with_the_token_as_its_password(service: FakeService, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    (tmp_path / "web.yml").write_text(f"bearer_token_file: {tmp_path / 'token'}\n")
    port = free_port()
    app = RemediatorWeb(service, BrowserGuard(credentials=True), "").app()
    runner = await serve(app, [f"127.0.0.1:{port}"], str(tmp_path / "web.yml"))
    try:
        async with chromium() as page:
            await page.open(f"http://kim:s3cret@127.0.0.1:{port}/")
            await click(page, "Pause…")
            await page.value("document.querySelector('[name=for]').value = '2h'")
            await click(page, "Pause")
            assert changes(service)[0][:2] == ("pause", "llm/a")
    finally:
        await runner.cleanup()


async def test_a_page_of_another_site_cannot_press_the_button(at: tuple[Page, str], service: FakeService) -> None:
    """`localhost` and `127.0.0.1` are two sites to a browser: one posts to the other."""
    page, base = at

    async def lure(_: web.Request) -> web.Response:
        form = f'<form method="post" action="{base}/api/v1/pause"><input name="for" value="30d"><button>Win!</button></form>'
        return web.Response(text=f"<!doctype html>{form}", content_type="text/html")

    app = web.Application()
    app.router.add_get("/", lure)
    async with TestServer(app, host="127.0.0.1") as elsewhere:
        await page.open(f"http://localhost:{elsewhere.port}/")
        await page.value(f"fetch('{base}/api/v1/pause', {{method: 'POST', mode: 'no-cors'}}).then(() => 0, () => 0)")
        await click(page, "Win!")
        assert "another site (cross-site)" in await page.value("document.body.innerText")
    assert changes(service) == []


async def test_what_an_alert_carries_is_text(at: tuple[Page, str]) -> None:
    page, base = at
    for path in ("/", "/targets/b", "/targets/llm%2Fa"):
        await page.open(base + path)
        assert await page.value("document.querySelectorAll('img, script').length") == 0
        assert "owned" not in await page.value("document.title")
        assert INJECTION in await page.value("document.documentElement.textContent")
    assert not page.errors, page.errors


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_fits_a_phone_and_has_the_scheme_that_the_person_prefers(at: tuple[Page, str], scheme: str) -> None:
    page, base = at
    await page.screen(360, 740, scheme, mobile=True)
    grounds = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 26)"}
    for path in ("/", "/targets/b", "/confirm/pause"):
        await page.open(base + path)
        assert await page.value("document.documentElement.scrollWidth <= innerWidth"), path
        assert await page.value("getComputedStyle(document.body).backgroundColor") == grounds[scheme]
        small = "[...document.querySelectorAll('.button, button')].filter(b => b.offsetHeight < 40).length"
        assert await page.value(small) == 0, "a thumb must hit it"


async def test_it_can_be_used_by_keyboard(at: tuple[Page, str]) -> None:
    page, base = at
    await page.open(f"{base}/")
    seen = []
    for _ in range(8):
        await page.press("Tab")
        seen.append(await page.value("document.activeElement.innerText"))
        outline = await page.value("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", seen
    assert "Pause all…" in seen
    assert "llm/a" in seen
