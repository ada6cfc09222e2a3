"""``python -m llm_sim.traffic URL``: clients that keep a server busy, for the demo and the end-to-end tests.

Sends only to loopback and private addresses (Docker networks): it is a load generator.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import re
import signal
import socket
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp

_BACK_OFF_SECONDS = 1.0
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")


@dataclass(frozen=True)
class Plan:
    """What the clients do; ``seconds`` is None for until told to stop, ``requests`` None for no limit."""

    url: str
    concurrency: int
    prompt_tokens: int
    max_tokens: int
    stream: bool
    api_key: str | None
    seconds: float | None
    requests: int | None


@dataclass
class Tally:
    """What came of the requests, by HTTP status or error."""

    started: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        parts = ", ".join(f"{count} x {outcome}" for outcome, count in sorted(self.outcomes.items()))
        return f"{self.started} requests sent: {parts or 'none ended'}"


def check_address(url: str) -> None:
    """Refuse a URL whose host is not on loopback or a private network; raises ``ValueError`` saying so."""
    host = urlsplit(url).hostname
    if host is None:
        raise ValueError(f"{url}: not a URL; write http://127.0.0.1:8000")
    for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
        if not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_private:
            raise ValueError(f"{url}: {address[0]} is a public address; this load is for local servers only")


async def run(plan: Plan, end: asyncio.Event, tally: Tally) -> None:
    """Keep ``concurrency`` requests open until ``end``, the time or the number of requests is reached."""
    headers = {"Authorization": f"Bearer {plan.api_key}"} if plan.api_key else {}
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None, connect=10)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers) as session:
        clients = [asyncio.create_task(_client(plan, session, tally)) for _ in range(plan.concurrency)]
        ending = asyncio.create_task(end.wait())
        everybody = asyncio.gather(*clients)
        waits: set[asyncio.Future[Any]] = {ending, everybody}
        await asyncio.wait(waits, timeout=plan.seconds, return_when=asyncio.FIRST_COMPLETED)
        if everybody.done():
            everybody.result()  # a client that failed for a reason of its own is a bug to be seen
        for task in (ending, *clients):
            task.cancel()
        await asyncio.gather(ending, everybody, return_exceptions=True)


async def _client(plan: Plan, session: aiohttp.ClientSession, tally: Tally) -> None:
    body = {"prompt": [1] * plan.prompt_tokens, "max_tokens": plan.max_tokens, "stream": plan.stream}
    url = plan.url.rstrip("/") + "/v1/completions"
    while plan.requests is None or tally.started < plan.requests:
        tally.started += 1
        try:
            async with session.post(url, json=body) as answer:
                await answer.read()
                outcome = f"HTTP {answer.status}"
        except (aiohttp.ClientError, TimeoutError) as wrong:
            outcome = type(wrong).__name__
        tally.outcomes[outcome] += 1
        if outcome != "HTTP 200":
            await asyncio.sleep(_BACK_OFF_SECONDS)


def seconds(text: str) -> float:
    """Read ``90``, ``90s``, ``5m`` or ``1h30m``."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90s or 5m")
    hours, minutes, rest = found.groups(default="0")
    return int(hours) * 3600 + int(minutes) * 60 + float(rest)


def main(arguments: Sequence[str] | None = None) -> int:
    """Send until the end; prints the tally. Exit status 2 for an address that is not local."""
    parser = argparse.ArgumentParser(prog="python -m llm_sim.traffic", description=__doc__)
    parser.add_argument("url", metavar="URL")
    parser.add_argument("--concurrency", type=int, default=60)
    parser.add_argument("--prompt-tokens", type=int, default=100)
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--api-key", default=None)
    parser.add_argument("--for", dest="seconds", type=seconds, default=None, help="end after 90s, 5m, …")
    parser.add_argument("--requests", type=int, default=None, help="end after so many requests")
    plan = Plan(**vars(parser.parse_args(arguments)))
    try:
        check_address(plan.url)
    except (ValueError, socket.gaierror) as wrong:
        sys.stderr.write(f"{wrong}\n")
        return 2
    tally = Tally()
    asyncio.run(_until_signalled(plan, tally))
    sys.stdout.write(f"{tally}\n")
    return 0


async def _until_signalled(plan: Plan, tally: Tally) -> None:
    end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end.set)
    await run(plan, end, tally)


if __name__ == "__main__":
    sys.exit(main())
