"""The exporter's pages in a real browser: what is shown, that nothing is injected, that it can be read and used."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from e2e.browser import Page, chromium
from exporter.engine_server import Engine, serving
from exporter.virtual_time import VirtualClock
from llm_exporter.clock import SystemClock
from llm_exporter.config import Config
from llm_exporter.service import Options, Service
from llm_exporter.target_config import Canary, Target, TargetOptions
from llm_exporter.web import Web

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
PICTURES = Path(__file__).parents[2] / "docs" / "images"
# WRITE_PICTURES=1 with -k fleet renews the pictures of the docs.
PICTURED = "WRITE_PICTURES" in os.environ
INJECTION = '"><img src=x onerror=alert(1)><script>alert(2)</script>'
QUICK = TargetOptions(
    interval=1.0, timeout=0.9, stalled_after=3.0, stuck_after=60.0, start_grace=0.0,
    canary=Canary(timeout=0.2, idle="off", confirm=False),
)  # fmt: skip


@asynccontextmanager
async def exporter() -> AsyncIterator[str]:
    """An exporter that saw a stuck, a busy, and a closed server; gives its URL."""
    async with serving(Engine(running=4, steps=9, tokens=9)) as stuck, serving(Engine(running=12, waiting=40)) as busy:
        targets = (
            Target("hung", stuck.base, labels={"team": "search" if PICTURED else INJECTION}, options=QUICK),
            Target("saturated", busy.base, options=QUICK),
            Target("gone", "http://127.0.0.1:1", options=QUICK),
        )
        clock = VirtualClock(unix=SystemClock().unix() - 120)
        service = Service(lambda: Config(targets=targets), Options(), clock)
        await service.fleet.set_targets(targets)
        runner = web.AppRunner(Web(service.fleet, service.guard, service.lag, clock, service.state).app())
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            for _ in range(66):
                busy.work()
                for target in targets:
                    monitor = service.fleet.monitor(target.name)
                    assert monitor is not None
                    await monitor.observe()
                clock.now += 1.0
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await service.stop()
            await runner.cleanup()


@pytest.fixture
async def at() -> AsyncIterator[tuple[Page, str]]:
    async with exporter() as base, chromium() as page:
        yield page, base


async def text(page: Page, selector: str) -> str:
    return str(await page.value(f"document.querySelector({selector!r})?.innerText ?? ''"))


async def test_the_fleet_shows_the_worst_first_and_leads_to_the_evidence(at: tuple[Page, str]) -> None:
    page, base = at
    await page.screen(1100)
    await page.open(f"{base}/")
    rows = await page.value("[...document.querySelectorAll('tbody tr')].map(row => row.innerText.replace(/\\s+/g, ' '))")
    assert [row.split(" ")[0] for row in rows] == ["hung", "gone", "saturated"]
    assert "stuck" in rows[0]
    assert "connection refused" in rows[1]
    assert "12 running, 40 waiting" in rows[2]
    await page.follow("document.querySelector('tbody a')")
    await page.until("document.title === 'hung: stuck'")
    body = await text(page, "main")
    assert "nothing moved for" in body
    assert "vllm:iteration_tokens_total_count" in body
    assert "What would change the verdict" in body
    assert "No request was sent." in body
    assert page.errors == []
    if PICTURED:
        PICTURES.mkdir(exist_ok=True)
        await page.screen(1000, 1100)
        await page.picture(PICTURES / "exporter-target.png")
        await page.open(f"{base}/")
        await page.screen(1000, 420, "dark")
        await page.picture(PICTURES / "exporter-fleet.png")


async def test_what_a_server_or_a_label_says_is_text_and_never_code(at: tuple[Page, str]) -> None:
    page, base = at
    await page.open(f"{base}/targets/hung")
    assert INJECTION in await text(page, "main")
    assert await page.value("document.scripts.length + document.images.length") == 0
    await page.open(f"{base}/targets/%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    assert "<script>alert(1)</script> is not watched" in await text(page, "main")
    assert await page.value("document.scripts.length") == 0
    assert [error for error in page.errors if "404" not in error] == []


@pytest.mark.parametrize("path", ["/", "/targets/hung", "/targets/gone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_can_be_read_on_a_phone_by_day_and_by_night(at: tuple[Page, str], path: str, scheme: str) -> None:
    page, base = at
    await page.screen(360, 740, scheme, mobile=True)
    await page.open(base + path)
    assert await page.value("document.documentElement.scrollWidth <= window.innerWidth")
    assert await page.value("parseFloat(getComputedStyle(document.body).fontSize)") >= 16
    faint = await page.value(CONTRAST)
    assert faint == []


async def test_the_keyboard_is_enough(at: tuple[Page, str]) -> None:
    page, base = at
    await page.open(f"{base}/")
    for _ in range(10):
        await page.press("Tab")
        if await page.value("document.activeElement.tagName === 'A'"):
            break
    assert await page.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    name = await page.value("document.activeElement.innerText")
    await page.press("Enter")
    await page.until(f"document.title.startsWith({name!r})")


async def test_a_screen_reader_finds_language_heading_headers_and_names(at: tuple[Page, str]) -> None:
    page, base = at
    for path in ("/", "/targets/hung"):
        await page.open(base + path)
        assert await page.value("document.documentElement.lang") == "en"
        assert await page.value("document.querySelectorAll('h1').length") == 1
        assert await page.value("[...document.querySelectorAll('th')].every(head => head.scope)")
        assert await page.value("[...document.querySelectorAll('[role=region],meter')].every(e => e.ariaLabel)")
        states = await page.value("[...document.querySelectorAll('.state')].every(e => e.innerText.length > 2)")
        assert states  # a colour is never the only sign


async def test_the_page_renews_itself_without_a_script(at: tuple[Page, str]) -> None:
    page, base = at
    await page.open(f"{base}/")
    assert await page.value("document.querySelector('meta[http-equiv=refresh]').content") == "10"
    first = await page.value("performance.timeOrigin")
    await page.until(f"performance.timeOrigin > {first}")


# Elements whose own text has less contrast to the nearest background than WCAG AA wants (4.5).
CONTRAST = """(() => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  return [...document.querySelectorAll('body *')].filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
    .map(e => { const a = light(rgb(getComputedStyle(e).color)), b = light(ground(e));
      return [e.className || e.tagName, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)]; })
    .filter(([, ratio]) => ratio < 4.5).map(([name, ratio]) => `${name} ${ratio.toFixed(2)}`);
})()"""
