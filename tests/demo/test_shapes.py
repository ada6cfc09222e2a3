"""In each situation exactly the same series move on the simulated page as on the real server's recorded one."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest

from demo.recorded import Recording, moved, series, value
from demo.sim_server import SimServer, until

RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
KV, PROMPT = "vllm:kv_cache_usage_perc", "vllm:prompt_tokens_total"
GENERATED, STEPS = "vllm:generation_tokens_total", "vllm:iteration_tokens_total_count"
DECODING = ("--decode-tokens-per-second", "60", "--block-size", "2", "--kv-blocks", "30000", "--prefill-tokens-per-second")
FAST_DECODE = (*DECODING, "20000")


async def page_where(server: SimServer, name: str, at_least: float) -> str:
    return await until(server.page, lambda page: value(page, name) >= at_least)


async def test_nothing_moves_while_idle(tmp_path: Path) -> None:
    real = Recording.load("vllm-solo-long-prefill")
    async with SimServer(tmp_path) as server:
        await server.ask(50, 3)
        first = await until(server.page, lambda page: value(page, RUNNING) == 0 and value(page, GENERATED) == 3)
        pages = [await server.page() for _ in range(20)]
    assert real.moved(0, 2) == set()
    assert all(moved(first, page) == set() for page in pages)


async def test_only_the_kv_gauge_moves_during_one_long_prefill(tmp_path: Path) -> None:
    real = Recording.load("vllm-solo-long-prefill")
    async with SimServer(tmp_path, "--chunk", "64", "--prefill-tokens-per-second", "400", *DECODING[:2]) as server:
        idle = await server.page()
        request = server.ask(960, 120)  # two seconds of decoding, so that a look falls into them on a busy machine
        arrived = await page_where(server, RUNNING, 1)
        usages = {value(arrived, KV)}
        page = arrived
        while len(usages) < 6:
            page = await until(server.page, lambda seen: value(seen, KV) not in usages)
            usages.add(value(page, KV))
        later = page
        decoding = await page_where(server, GENERATED, 2)
        assert (await request)[0] == 200
        finished = await until(server.page, lambda seen: value(seen, RUNNING) == 0)

    assert moved(idle, arrived) == real.moved(2, 5)
    assert moved(arrived, later) == real.moved(6, 63) == {KV}
    assert value(later, STEPS) == value(later, PROMPT) == value(later, GENERATED) == 0
    assert moved(later, decoding) == real.moved(63, 87)
    assert moved(decoding, finished) == moved(real.at(87), real.last)


async def test_a_stopped_engine_freezes_every_series_while_health_stays_200(tmp_path: Path) -> None:
    real = Recording.load("vllm-engine-core-stopped-while-busy")
    async with SimServer(tmp_path, *FAST_DECODE) as server:
        requests = [server.ask(60, 150) for _ in range(4)]
        started = await page_where(server, PROMPT, 240)
        busy = await page_where(server, GENERATED, value(started, GENERATED) + 80)
        await server.signal_engine(signal.SIGSTOP)
        stopped = await until(server.page, lambda page: value(page, RUNNING) == 4)
        pages = []
        for _ in range(40):  # 40 looks, 40 step times
            await asyncio.sleep(1 / 60)
            pages.append(await server.page())
        native = [await server.health(), (await server.get("/version"))["version"]]
        models = await server.get("/v1/models")
        await server.signal_engine(signal.SIGCONT)
        resumed = await page_where(server, GENERATED, value(pages[-1], GENERATED) + 40)
        answers = await asyncio.gather(*requests)
        finished = await until(server.page, lambda page: value(page, RUNNING) == 0)

    assert moved(started, busy) == real.moved(4, 6)
    assert moved(pages[1], pages[-1]) == real.moved(8, 26) == set()
    assert value(pages[-1], RUNNING) == 4
    assert native == [200, "0.32.0"]
    assert models["data"]
    assert moved(pages[-1], resumed) == real.moved(26, 28)
    assert [status for status, _ in answers] == [200] * 4
    assert moved(resumed, finished) == moved(real.at(119), real.last)
    assert value(finished, GENERATED) == 600
    assert stopped


async def test_an_engine_stopped_while_idle_says_nothing_running_and_nothing_waiting(tmp_path: Path) -> None:
    real = Recording.load("vllm-engine-stopped-while-idle-then-requests")
    async with SimServer(tmp_path, *FAST_DECODE) as server:
        await server.ask(10, 2)
        idle = await until(server.page, lambda page: value(page, RUNNING) == 0)
        await server.signal_engine(signal.SIGSTOP)
        requests = [server.ask(10, 2) for _ in range(3)]
        pages = []
        for _ in range(30):
            await asyncio.sleep(1 / 60)
            pages.append(await server.page())
        waiting = [request.done() for request in requests]
        await server.signal_engine(signal.SIGCONT)
        answers = await asyncio.gather(*requests)

    assert real.moved(2, 17) == set()
    assert all(moved(idle, page) == set() for page in pages)
    assert waiting == [False] * 3
    assert [status for status, _ in answers] == [200] * 3


async def test_an_abort_brings_the_gauges_down_and_counts_no_request(tmp_path: Path) -> None:
    real = Recording.load("vllm-clients-abort-while-busy")
    async with SimServer(tmp_path, *FAST_DECODE) as server:
        requests = [server.ask(60, 2000) for _ in range(4)]
        await page_where(server, PROMPT, 240)
        busy = await server.page()
        await page_where(server, GENERATED, value(busy, GENERATED) + 20)
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        aborted = await until(server.page, lambda page: value(page, RUNNING) == 0)
        later = [await server.page() for _ in range(10)]

    assert moved(busy, aborted) == real.moved(6, 7)
    assert all(moved(aborted, page) == set() for page in later)
    assert value(aborted, KV) == 0
    assert value(aborted, "vllm:request_success_total") == 0


async def test_old_versions_leave_the_gauges_up_after_an_abort(tmp_path: Path) -> None:
    """vllm#22545: from 0.9.1 to 0.10.1.1 an idle engine says that it runs requests whose clients have left."""
    async with SimServer(tmp_path, *FAST_DECODE, "--stale-gauges") as server:
        request = server.ask(60, 2000)
        await page_where(server, GENERATED, 5)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        frozen = await until(server.page, lambda page: value(page, GENERATED) > 0)
        pages = []
        for _ in range(30):
            await asyncio.sleep(1 / 60)
            pages.append(await server.page())
        assert value(pages[-1], RUNNING) == 1
        assert moved(pages[5], pages[-1]) == set()
        assert frozen
        assert (await server.ask(8, 2))[0] == 200


async def test_waiting_requests_are_shown_beyond_the_slots(tmp_path: Path) -> None:
    async with SimServer(tmp_path, *FAST_DECODE, "--slots", "12") as server:
        requests = [server.ask(20, 400) for _ in range(52)]
        page = await until(server.page, lambda seen: value(seen, RUNNING) == 12 and value(seen, WAITING) == 40)
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
    assert value(page, "vllm:num_requests_waiting_by_reason", 'reason="capacity"') == 40


async def test_a_killed_engine_ends_requests_in_500_and_the_server_at_once(tmp_path: Path) -> None:
    real = Recording.load("vllm-engine-core-killed")
    async with SimServer(tmp_path, *FAST_DECODE) as server:
        requests = [server.ask(60, 2000) for _ in range(2)]
        await page_where(server, GENERATED, 10)
        await server.signal_engine(signal.SIGKILL)
        answers = await asyncio.gather(*requests)
        await until(server.health, lambda status: status == "refused", within=5)
        await asyncio.wait_for(server.process.wait(), 10)
    assert max(real.pages) < 6.0  # killed at 6.007 s; refused at the next look, 0.4 s later
    assert [status for status, _ in answers] == [500, 500]
    assert "EngineCore encountered an issue" in answers[0][1]["error"]["message"]


async def test_an_engine_killed_while_idle_shows_503_before_the_server_ends(tmp_path: Path) -> None:
    async with SimServer(tmp_path) as server:
        await server.signal_engine(signal.SIGKILL)
        await until(server.health, lambda status: status == 503, within=5)
        await until(server.health, lambda status: status == "refused", within=10)
        await asyncio.wait_for(server.process.wait(), 10)


async def test_a_server_may_be_kept_alive_without_its_engine(tmp_path: Path) -> None:
    async with SimServer(tmp_path, "--keep-alive-on-engine-death") as server:
        await server.signal_engine(signal.SIGKILL)
        await until(server.health, lambda status: status == 503, within=5)
        assert (await server.ask(8, 2))[0] == 500
        assert (await server.health()) == 503
        assert await server.page()


@pytest.mark.parametrize("stopped", [False, True])
async def test_sigterm_closes_the_port_at_once(tmp_path: Path, stopped: bool) -> None:
    async with SimServer(tmp_path, *FAST_DECODE) as server:
        request = server.ask(60, 2000)
        await page_where(server, GENERATED, 10)
        if stopped:
            await server.signal_engine(signal.SIGSTOP)
        server.process.terminate()
        await until(server.health, lambda status: status == "refused", within=2)
        with pytest.raises(aiohttp.ClientConnectionError):
            await request
        assert await asyncio.wait_for(server.process.wait(), 10) == 0


async def test_a_stopped_api_process_times_out_while_the_engine_works_on(tmp_path: Path) -> None:
    real = Recording.load("vllm-api-server-stopped")
    async with SimServer(tmp_path, *FAST_DECODE) as server:
        request = server.ask(60, 200)
        before = await page_where(server, GENERATED, 10)
        server.process.send_signal(signal.SIGSTOP)
        assert await server.health() == "timeout"
        server.process.send_signal(signal.SIGCONT)
        after = await until(server.page, lambda page: value(page, GENERATED) > value(before, GENERATED) + 30)
        assert (await request)[0] == 200
    assert value(real.at(16), STEPS) > value(real.at(4), STEPS) + 100
    assert value(after, STEPS) > value(before, STEPS)


async def test_the_port_is_refused_until_the_model_is_loaded(tmp_path: Path) -> None:
    async with SimServer(tmp_path, "--load-seconds", "1", wait=False) as server:
        seen = []

        async def look() -> int | str:
            seen.append(await server.health())
            return seen[-1]

        await until(look, lambda status: status == 200)
        assert set(seen) == {"refused", 200}
        assert all(number == 0 for key, number in series(await server.page()).items() if key.startswith("vllm:num_req"))
