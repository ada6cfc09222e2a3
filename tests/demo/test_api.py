"""Routes, authentication, parallel ranks and refusals of the simulated server."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from demo.recorded import value
from demo.sim_server import SimServer, until

FAST = ("--decode-tokens-per-second", "200", "--prefill-tokens-per-second", "50000")


async def test_completions_and_chat_with_ids_or_text(tmp_path: Path) -> None:
    async with SimServer(tmp_path, *FAST) as server:
        status, by_ids = await server.post({"prompt": [5, 6, 7], "max_tokens": 4})
        assert status == 200
        assert by_ids["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
        status, by_text = await server.post({"prompt": "once upon a time", "max_tokens": 1})
        assert (status, by_text["object"], by_text["choices"][0]["finish_reason"]) == (200, "text_completion", "length")
        message = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
        status, chat = await server.post({"messages": [message], "max_tokens": 2}, path="/v1/chat/completions")
        assert status == 200
        assert chat["choices"][0]["message"]["role"] == "assistant"
        page = await server.page()
        assert 'http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"} 1.0' in page
        assert "/metrics" not in page.replace("/metrics/", "")


async def test_streams_one_event_per_token(tmp_path: Path) -> None:
    async with SimServer(tmp_path, *FAST) as server:
        body = {"prompt": [1], "max_tokens": 5, "stream": True, "stream_options": {"include_usage": True}}
        async with server.session.post(f"{server.url}/v1/completions", json=body) as answer:
            events = [line[6:] for line in (await answer.text()).splitlines() if line]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * 4 + ["length"]
    assert chunks[-1]["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"prompt": [1], "max_tokens": 0}, 400, "max_tokens"),
        ({"prompt": [1], "max_tokens": 41000}, 400, "maximum context length"),
        ({"prompt": ""}, 400, "prompt"),
        ({"prompt": [1, "x"]}, 400, "integers"),
        ({"prompt": ["a", "b"]}, 400, "one prompt"),
        ({"prompt": [1], "model": "other"}, 404, "`other` does not exist"),
        ([], 400, "object"),
    ],
)
async def test_refuses_with_a_reason(tmp_path: Path, body: object, status: int, words: str) -> None:
    async with SimServer(tmp_path) as server:
        found, answer = await server.post(body)
        assert found == status
        assert words in answer["error"]["message"]


async def test_the_api_key_guards_v1_only(tmp_path: Path) -> None:
    async with SimServer(tmp_path, *FAST, "--api-key", "s3cret") as server:
        assert (await server.ask(1, 1))[0] == 401
        assert (await server.ask(1, 1, {"Authorization": "Bearer wrong"}))[0] == 401
        assert (await server.ask(1, 1, {"Authorization": "Bearer s3cret"}))[0] == 200
        async with server.session.get(f"{server.url}/v1/models") as answer:
            assert answer.status == 401
        assert await server.health() == 200
        assert await server.page()


async def test_a_rank_is_chosen_by_header_and_a_stopped_one_does_not_hold_up_the_other(tmp_path: Path) -> None:
    async with SimServer(tmp_path, *FAST, "--data-parallel-size", "2") as server:
        await server.signal_engine(signal.SIGSTOP, rank=1)
        hanging = server.ask(4, 2, {"X-data-parallel-rank": "1"})
        assert (await server.ask(4, 2, {"X-data-parallel-rank": "0"}))[0] == 200
        assert (await server.ask(4, 2, {"X-data-parallel-rank": "2"}))[0] == 400
        assert not hanging.done()
        page = await until(server.page, lambda seen: value(seen, "vllm:generation_tokens_total", 'engine="0"') == 2)
        assert value(page, "vllm:generation_tokens_total", 'engine="1"') == 0
        await server.signal_engine(signal.SIGCONT, rank=1)
        assert (await hanging)[0] == 200


async def test_one_engine_ignores_the_rank_header(tmp_path: Path) -> None:
    async with SimServer(tmp_path, *FAST) as server:
        assert (await server.ask(4, 2, {"X-data-parallel-rank": "7"}))[0] == 200


async def test_requests_spread_over_the_ranks(tmp_path: Path) -> None:
    async with SimServer(tmp_path, *FAST, "--data-parallel-size", "2") as server:
        await asyncio.gather(*(server.ask(4, 20) for _ in range(6)))
        page = await server.page()
    assert (
        value(page, "vllm:request_success_total", 'engine="0"')
        == value(page, "vllm:request_success_total", 'engine="1"')
        == 3
    )
