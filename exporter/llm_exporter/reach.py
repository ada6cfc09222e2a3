"""How a look ended: answered, loading, or how it failed; and the mend where an answer cannot be judged. Pure."""

from __future__ import annotations

from .engines import Engine, Look, Page, engines, llamacpp
from .judge import Reach
from .judge.words import duration


def reach_of(look: Look, engine: Engine | None, *, served: bool) -> tuple[Reach, str]:
    """How the look ended, and for what cannot be judged the reason with its mend.

    Args:
        look: What the endpoints said.
        engine: The adapter in use, if the engine is known.
        served: This process has been seen able to serve: then a 503 of its page is not loading.
    """
    page = look.metrics
    if engine is not None and engine.metrics_path is None and page.kind is None:
        return "answered", "" if page.status == 200 else f"{page.status} on {engine.look_path}"
    if page.kind is not None:
        if page.kind == "other" and (page.error or "").startswith(("oversize:", "encoding:", "protocol:")):
            return "answered", f"the metrics page cannot be read: {(page.error or '').partition(':')[2].strip()}"
        return _failed(page, look.health)
    if (refusal := load_failed(page)) is not None:
        return "answered", refusal
    loading = engine.loading(page) if engine is not None else _any_loading(page)
    if loading is not None:
        return "loading", loading
    if page.status == 503 and not served:
        return "loading", "503 on the metrics page: not ready yet"
    return "answered", "" if page.status == 200 else _mend(engine, look)


def load_failed(page: Page) -> str | None:
    """An answer that says that the model could not be loaded (llama.cpp's router: 500 ``failed to load``)."""
    if (page.status or 0) < 500 or "failed to load" not in page.body.lower():
        return None
    return f"{page.status} on the metrics page: it says that the model failed to load"


def _any_loading(page: Page) -> str | None:
    return next((words for engine in engines() if (words := engine.loading(page)) is not None), None)


def _failed(page: Page, health: Page | None) -> tuple[Reach, str]:
    words = page.error or page.kind or ""
    if page.kind == "refused":
        return "refused", words
    if page.kind == "timeout":
        words = f"no answer within {duration(page.seconds)}"
        if health is not None and health.status is not None:
            words += (
                f", while its /health answers {health.status} in {health.seconds * 1000:.0f} ms: "
                "one long step or a hang, the metrics cannot tell"
            )
        return "timeout", words
    kind = page.kind or "other"
    return kind, f"{kind}: {words}"


def _mend(engine: Engine | None, look: Look) -> str:
    page = look.metrics
    status = page.status or 0
    if engine is not None and status in engine.mend:
        return f"{status} on the metrics page: {engine.mend[status]}"
    if engine is None and status == 400 and "model name is missing" in page.body:
        return f"400 on the metrics page: {llamacpp.ENGINE.mend[400]}"
    if status in (401, 403):
        return f"{status} on the metrics page: it needs a key; give bearer_token_file, or the right key in it"
    models = look.extra.get("/v1/models")
    if status == 404 and models is not None and models.status in (401, 403):
        return f"404: no metrics page here, and {models.status} on /v1/models: it needs a key; give bearer_token_file"
    if status == 404:
        return "404: no metrics page here; SGLang needs --enable-metrics, or metrics_path is another, or it is no engine"
    if status == 501:
        return "501 on the metrics page: start llama-server with --metrics"
    if 300 <= status < 400:
        where = page.headers.get("Location", "nowhere")[:200]
        mend = f"give metrics_path: {where}" if where.startswith("/") else "give that address as url"
        return f"{status}: the metrics page redirects (to {where}); {mend}"
    return f"{status} on the metrics page: the server's own metrics fail, the engine may be fine"
