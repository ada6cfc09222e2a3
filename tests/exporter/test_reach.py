"""How a look ended, and which mend a page that cannot be judged is given."""

from __future__ import annotations

import pytest

from llm_exporter.engines import Look, Page, by_kind
from llm_exporter.reach import reach_of

ENDINGS = [
    # what the metrics page said, what is known of its server, how the look ended, words in the reason
    (Page(status=200), None, "answered", ""),
    (Page(status=401), None, "answered", "401 on the metrics page: it needs a key; give bearer_token_file"),
    (Page(status=403), "vllm", "answered", "403 on the metrics page: it needs a key; give bearer_token_file"),
    (Page(status=401), "llamacpp", "answered", "llama-server guards /metrics with its API key"),
    (Page(status=400, body="model name is missing"), None, "answered", "a llama.cpp router needs the model's name"),
    (Page(status=404), None, "answered", "404: no metrics page here"),
    (Page(status=404), "sglang", "answered", "start SGLang with --enable-metrics"),
    (Page(status=501), None, "answered", "start llama-server with --metrics"),
    (Page(status=500), None, "answered", "the server's own metrics fail, the engine may be fine"),
    (Page(status=500), "vllm", "answered", "vLLM issue 49983"),
    (Page(status=307, headers={"Location": "http://b/"}), None, "answered", "redirects (to http://b/); give that address"),
    (Page(status=307, headers={"Location": "/metrics/"}), None, "answered", "(to /metrics/); give metrics_path: /metrics/"),
    (Page(status=500, body="Failed to load model"), None, "answered", "it says that the model failed to load"),
    (Page(status=503, body="Loading model"), None, "loading", "loading the model"),
    (Page(kind="other", error="oversize: the body is larger"), None, "answered", "cannot be read: the body is larger"),
    (Page(kind="other", error="odd"), None, "other", "other: odd"),
    (Page(kind="refused", error="a port 1: refused"), None, "refused", "a port 1: refused"),
    (Page(kind="dns", error="no such name"), None, "dns", "dns: no such name"),
    (Page(kind="timeout", seconds=4.0), None, "timeout", "no answer within 4s"),
]


@pytest.mark.parametrize(("page", "engine", "reach", "words"), ENDINGS)
def test_every_ending_has_its_words_and_its_mend(page: Page, engine: str | None, reach: str, words: str) -> None:
    known = by_kind(engine) if engine is not None else None
    ended, said = reach_of(Look(0.0, 1e9, page), known, served=False)
    assert ended == reach
    assert words in said
    assert bool(said) == (page.status != 200)


@pytest.mark.parametrize(("served", "reach"), [(False, "loading"), (True, "answered")])
def test_a_503_is_loading_only_until_it_has_served(served: bool, reach: str) -> None:
    assert reach_of(Look(0.0, 1e9, Page(status=503)), None, served=served)[0] == reach


def test_a_timeout_says_what_its_health_does_meanwhile() -> None:
    look = Look(0.0, 1e9, Page(kind="timeout", seconds=4.0), Page(status=200, seconds=0.012))
    assert "while its /health answers 200 in 12 ms" in reach_of(look, None, served=True)[1]
