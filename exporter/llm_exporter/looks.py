"""Makes the looks at one target: which endpoints are asked, in which order, and for how long. One request at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from llm_exporter.clock import Clock
from llm_exporter.engines import ALIVE, IDENTIFY, Engine, Known, Look, Page, detect, detect_by_answers, engines
from llm_exporter.engines.proxy import answers_as as is_proxy
from llm_exporter.exposition import Samples, sketch
from llm_exporter.large_pages import off_loop
from llm_exporter.scrape import Scraper
from llm_exporter.target_config import Target

# Side endpoints that these codes answer do not exist for us: they are not asked again in this process's life.
NOT_FOR_US = frozenset({400, 401, 403, 404, 405, 501})
# Only these say that there is no metrics page; 401 and 501 say how to get one, and nothing else is to be guessed then.
NO_SUCH_PAGE = frozenset({404, 405})
UNREACHABLE = frozenset({"refused", "dns", "tls", "noroute"})
SIDE_TIMEOUT = 2.0
# The static endpoint only serves one gauge; asked with every look it would cost a third of all requests.
STATIC_EVERY = 30.0
ONCE_TRIES = 3


class Looker:
    """Looks at one target. What was learned of side endpoints holds until `forget`, that is for one process."""

    def __init__(self, scraper: Scraper, target: Target, clock: Clock) -> None:
        self._scraper = scraper
        self._clock = clock
        self.target = target
        self._refused: set[str] = set()
        self._asked = 0
        self.static_seconds: float | None = None
        self._static_at = -STATIC_EVERY

    def forget(self) -> None:
        """Another process answers now: ask everything anew."""
        self._refused.clear()
        self._asked = 0

    async def look(self, engine: Engine | None, timeout: float, interval: float, served: bool = False) -> Look:
        """One look: the metrics page, the engine's health, and its cheap side endpoints while time remains.

        `served` says that this process has served: an engine whose health runs the model is not asked for it then.
        """
        began, unix = self._clock.monotonic(), self._clock.unix()
        if began - self._static_at >= STATIC_EVERY:
            self.static_seconds = None
        without_metrics = engine is not None and engine.metrics_path is None
        health: Page | None = None
        if engine is not None and without_metrics:
            metrics = await self._get(engine.look_path, timeout)
        else:
            metrics = await self._metrics(engine, timeout)
        deadline = began + max(0.9 * interval, timeout)
        health_path, extra = await self._health_path(engine, metrics, timeout, deadline, served)
        if health_path is not None:
            health = metrics if metrics.kind in UNREACHABLE else await self._side(health_path, timeout, deadline)
        if engine is None and health_path is not None and metrics.status in NO_SUCH_PAGE:
            extra |= {path: await self._side(path, timeout, deadline) for path in IDENTIFY}
        found = detect_by_answers(extra) if engine is None else None
        if found is not None and found.metrics_path is None and found.look_path not in extra:
            extra[found.look_path] = await self._side(found.look_path, timeout, deadline)
        if engine is not None and metrics.kind is None and (without_metrics or metrics.status == 200):
            extra = await self._sides(engine, timeout, deadline)
        return Look(began, unix, metrics, health, extra)

    async def _health_path(
        self, engine: Engine | None, metrics: Page, timeout: float, deadline: float, served: bool
    ) -> tuple[str | None, dict[str, Page]]:
        """Where this server may be asked for its health, if anywhere, and what an unknown one was asked to tell."""
        if engine is None and metrics.status == 200:
            engine = await off_loop(metrics.body, lambda: detect(sketch(metrics.body)))
        if engine is not None:
            spared = engine.health_until_served and (served or metrics.status in NO_SUCH_PAGE)
            return (None if spared else engine.health_path), {}
        if ALIVE in self._refused or metrics.kind in UNREACHABLE:
            return "/health", {}
        page = await self._side(ALIVE, timeout, deadline)
        if page.status in NOT_FOR_US:
            self._refused.add(ALIVE)
            return "/health", {}
        # No answer, or LiteLLM's: its /health would be paid for. Any other answer is not LiteLLM's.
        return ("/health" if page.status is not None and not is_proxy({ALIVE: page}) else None), {ALIVE: page}

    async def raw(self, engine: Engine | None, timeout: float) -> Page:
        """The metrics page (or the health page of an engine without metrics), for people."""
        if engine is not None and engine.metrics_path is None:
            return await self._get(engine.look_path, timeout)
        return await self._metrics(engine, timeout)

    async def about(self, engine: Engine) -> Known | None:
        """Ask what is asked once per process; None while it cannot be had (at most three tries)."""
        if engine.about is None or self._asked >= ONCE_TRIES:
            return None
        self._asked += 1
        pages = {path: await self._get(path, SIDE_TIMEOUT, key=True) for path in engine.once}
        if all(page.kind is None and (page.status or 0) < 500 for page in pages.values()):
            self._asked = ONCE_TRIES
        return engine.about(pages)

    async def _metrics(self, engine: Engine | None, timeout: float) -> Page:
        own = self.target.metrics_path or (engine.metrics_path if engine is not None else None)
        if own is not None:
            return await self._get(own, timeout)
        # An unknown server is asked for /metrics last: trtllm-serve's is JSON, and who reads it takes it from its owner.
        for path, recognises in _elsewhere():
            if path in self._refused:
                continue
            page = await self._get(path, timeout)
            if page.kind is not None:
                return page
            if page.status == 200 and await off_loop(page.body, partial(_shows, page, recognises)):
                return page
            if page.status in NOT_FOR_US or page.status == 200:
                self._refused.add(path)
        return await self._get("/metrics", timeout)

    async def _sides(self, engine: Engine, timeout: float, deadline: float) -> dict[str, Page]:
        pages: dict[str, Page] = {}
        for path in engine.each_look:
            if path not in self._refused and path != engine.look_path and self._clock.monotonic() < deadline:
                page = await self._side(path, timeout, deadline)
                if page.status in NOT_FOR_US:
                    self._refused.add(path)
                else:
                    pages[path] = page
        static = engine.once[0] if engine.once else None
        now = self._clock.monotonic()
        due = static in pages or now - self._static_at >= STATIC_EVERY
        if static is None or static in self._refused or not due or now >= deadline:
            return pages
        page = pages.get(static) or await self._side(static, timeout, deadline)
        self._static_at = now
        if page.status == 200:
            self.static_seconds = page.seconds
        elif page.status in NOT_FOR_US:
            self._refused.add(static)
        return pages

    async def _side(self, path: str, timeout: float, deadline: float) -> Page:
        left = max(0.2, deadline - self._clock.monotonic())
        return await self._get(path, min(timeout, SIDE_TIMEOUT, left))

    async def _get(self, path: str, timeout: float, key: bool = False) -> Page:
        access = self.target.access
        token = self.target.options.canary.api_key_file if key else None
        return await self._scraper.request("GET", access, path, timeout, token_file=token)


def _elsewhere() -> Iterable[tuple[str, Callable[[Samples], bool]]]:
    """Where engines keep their metrics that do not keep them at ``/metrics``, and how their pages are told."""
    return [(e.metrics_path, e.recognises) for e in engines() if e.metrics_path not in (None, "/metrics")]


def _shows(page: Page, recognises: Callable[[Samples], bool]) -> bool:
    """Whether this is the page of the engine that keeps it there: some servers answer every path with something."""
    return recognises(sketch(page.body))
