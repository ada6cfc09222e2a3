"""What watching costs, side by side with Prometheus: `python benchmarks/fleet.py`.

1. Reading: prometheus_client's parser against our reader, on one recorded vLLM page.
2. Observing: CPU of the exporter per look (fetch, read, judge, render) against CPU of a Prometheus per scrape of the same
   page from the same server, one after the other in one run.
3. A fleet: 5,000 targets every 15 s: share of a core, memory per target, and how long the exporter's loop is held while
   ``/metrics`` with all of them is rendered.

CPU time is compared, not wall time, so that a busy machine changes both sides alike. Needs Prometheus' binary for part 2.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "common"), str(ROOT / "exporter")]

from prometheus_client.parser import text_string_to_metric_families  # noqa: E402

from llm_common.guard import Guard  # noqa: E402
from llm_exporter import collector  # noqa: E402
from llm_exporter.clock import SystemClock  # noqa: E402
from llm_exporter.engines import Look, by_kind  # noqa: E402
from llm_exporter.exposition import read  # noqa: E402
from llm_exporter.lines import render  # noqa: E402
from llm_exporter.monitor import Monitor  # noqa: E402
from llm_exporter.pipeline import Mind, step  # noqa: E402
from llm_exporter.scrape import Access, Scraper  # noqa: E402
from llm_exporter.target_config import Canary, Target, TargetOptions  # noqa: E402

PAGES_PORT, EXPORTER_PORT, PROMETHEUS_PORT = 19441, 19442, 19443
TICKS = os.sysconf("SC_CLK_TCK")
ENV = {**os.environ, "PYTHONPATH": f"{ROOT}/common:{ROOT}/exporter"}


def recorded_page() -> str:
    """The largest page of a recorded vLLM."""
    path = ROOT / "tests" / "recordings" / "vllm-idle-busy-idle.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines()
    return max((json.loads(line).get("metrics", {}).get("body", "") for line in lines), key=len)


class PageServer(asyncio.Protocol):
    """Answers as a vLLM does, as cheaply as Python can."""

    page = b""
    looks = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._buffer = transport, b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, self._buffer = self._buffer.split(b"\r\n\r\n", 1)
            path = head.split(b" ", 2)[1]
            PageServer.looks += path == b"/metrics"
            body, status = {
                b"/metrics": (self.page, b"200 OK"),
                b"/health": (b"", b"200 OK"),
                b"/looks": (b"%d" % self.looks, b"200 OK"),
                b"/version": (b'{"version":"0.32.0"}', b"200 OK"),
                b"/v1/models": (b'{"data":[{"id":"m"}]}', b"200 OK"),
            }.get(path, (b"", b"404 Not Found"))
            self._transport.write(
                b"HTTP/1.1 %b\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)
            )


async def serve_pages() -> None:
    PageServer.page = recorded_page().encode()
    server = await asyncio.get_running_loop().create_server(PageServer, "0.0.0.0", PAGES_PORT, backlog=4096)
    await server.serve_forever()


def addresses(count: int) -> Sequence[str]:
    """Loopback addresses: one host name has at most 32 requests at once, a real fleet has many hosts."""
    return [f"127.{1 + n // 62500}.{n // 250 % 250}.{1 + n % 250}:{PAGES_PORT}" for n in range(count)]


@contextmanager
def running(command: Sequence[str], ready: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 120
        while True:
            try:
                with urlopen(ready, timeout=5) as answer:
                    if answer.status == 200:
                        break
            except OSError:
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{command[0]} did not start") from None
                time.sleep(0.1)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def cpu(process: subprocess.Popen[bytes]) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory(process: subprocess.Popen[bytes]) -> float:
    """Resident bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1024.0 * int(status.partition("VmRSS:")[2].split()[0])


def exporter(count: int, interval: str, folder: Path) -> Sequence[str]:
    config = folder / "exporter.yml"
    targets = [f"  - {{name: t{n}, url: 'http://{address}'}}" for n, address in enumerate(addresses(count))]
    defaults = f"defaults: {{interval: {interval}, canary: {{confirm: false, idle: off}}}}"
    config.write_text("\n".join([defaults, "targets:", *targets]))
    listen = f"--web.listen-address=127.0.0.1:{EXPORTER_PORT}"
    return [sys.executable, "-m", "llm_exporter", f"--config.file={config}", listen, "--log.level=warning"]


def metric(name: str, labels: str = "", port: int = EXPORTER_PORT) -> float:
    """The sum of a series' samples on a page."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return sum(
        float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")) and labels in line
    )


def looks() -> int:
    """How often the page was asked for so far, by the server's own count."""
    with urlopen(f"http://127.0.0.1:{PAGES_PORT}/looks", timeout=60) as answer:
        return int(answer.read())


def reading() -> None:
    page, engine = recorded_page(), by_kind("vllm")
    assert engine is not None

    def best(action: object, rounds: int) -> float:
        assert callable(action)
        times = []
        for _ in range(rounds):
            began = time.process_time()
            for _ in range(10):
                action()
            times.append((time.process_time() - began) / 10)
        return 1000 * min(times)

    theirs = best(lambda: list(text_string_to_metric_families(page)), 5)
    ours = best(lambda: read(page, engine.series), 30)
    row(
        f"reading a {len(page) / 1000:.0f} KB vLLM page",
        f"prometheus_client {theirs:.2f} ms",
        f"ours {ours:.2f} ms",
        f"{theirs / ours:.0f}x",
    )


async def judging(rounds: int) -> float:
    """CPU seconds to fetch, read and judge that one page, as Prometheus fetches, reads and stores it."""
    scraper, settings, mind = Scraper(), TargetOptions(canary=Canary(idle="off")).settings(by_kind("vllm")), Mind.of("vllm")
    access = Access(f"http://127.0.0.1:{PAGES_PORT}")
    times = []
    for number in range(rounds):
        began = time.process_time()
        page = await scraper.request("GET", access, "/metrics", 10.0)
        mind, _ = step(mind, Look(float(number), float(number), page), settings)
        times.append(time.process_time() - began)
    await scraper.close()
    return statistics.median(times)


def _cpu_per_look(process: subprocess.Popen[bytes], seconds: float) -> float:
    time.sleep(3)
    before, began = looks(), cpu(process)
    time.sleep(seconds)
    return (cpu(process) - began) / (looks() - before)


def observing(count: int, seconds: float, folder: Path) -> None:
    with running(exporter(count, "1s", folder), f"http://127.0.0.1:{EXPORTER_PORT}/-/ready") as process:
        ours = 1000 * _cpu_per_look(process, seconds)
    program = shutil.which("prometheus")
    if program is None:
        row("CPU per look", "no Prometheus here", f"ours {ours:.2f} ms", "")
        return
    config = folder / "prometheus.yml"
    listed = json.dumps(list(addresses(count)))
    job = f"{{job_name: x, scrape_interval: 1s, scrape_timeout: 1s, static_configs: [{{targets: {listed}}}]}}"
    config.write_text(f"scrape_configs: [{job}]")
    command = [program, f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
               f"--web.listen-address=127.0.0.1:{PROMETHEUS_PORT}"]  # fmt: skip
    with running(command, f"http://127.0.0.1:{PROMETHEUS_PORT}/-/ready") as process:
        theirs = 1000 * _cpu_per_look(process, seconds)
    alone = 1000 * asyncio.run(judging(1000))
    row("CPU to fetch, read and judge that page", f"Prometheus' scrape {theirs:.2f} ms", f"ours {alone:.2f} ms",
        f"{theirs / alone:.1f}x")  # fmt: skip
    row("the whole process, with its request for `/health`", f"Prometheus {theirs:.2f} ms", f"ours {ours:.2f} ms",
        f"{theirs / ours:.1f}x")  # fmt: skip


async def fleet(count: int, seconds: float, process: subprocess.Popen[bytes]) -> None:
    import aiohttp

    began, started = cpu(process), time.monotonic()
    delays: list[float] = []
    renders: list[float] = []
    async with aiohttp.ClientSession(f"http://127.0.0.1:{EXPORTER_PORT}") as session:

        async def scrape() -> None:
            while time.monotonic() - started < seconds:
                at = time.monotonic()
                async with session.get("/metrics") as answer:
                    await answer.read()
                renders.append(time.monotonic() - at)
                await asyncio.sleep(5)

        scraping = asyncio.create_task(scrape())
        while time.monotonic() - started < seconds:
            at = time.monotonic()
            async with session.get("/-/healthy") as answer:
                await answer.read()
            delays.append(time.monotonic() - at)
            await asyncio.sleep(0.02)
        await scraping
    share = (cpu(process) - began) / (time.monotonic() - started)
    p99 = statistics.quantiles(delays, n=100)[98]
    late, held = metric("llm_exporter_late_observations_total"), metric("llm_exporter_loop_lag_seconds")
    row(f"{count} targets every 15 s", f"{100 * share:.0f} % of a core", f"{memory(process) / count / 1000:.0f} KB a target",
        f"late looks: {late:.0f}")  # fmt: skip
    row("`/metrics` with all of them", f"median {1000 * statistics.median(renders):.0f} ms",
        f"others are answered within {1000 * p99:.0f} ms (p99 of {len(delays)})",
        f"largest delay of its loop in 30 s: {1000 * held:.0f} ms; load {os.getloadavg()[0]:.1f}")  # fmt: skip


def row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


async def rendering(count: int) -> None:
    """CPU time between two chances of the event loop while the page of all targets is rendered."""
    clock, scraper, guard = SystemClock(), Scraper(), Guard()
    quiet = TargetOptions(canary=Canary(confirm=False, idle="off"))
    monitor = Monitor(Target("t", f"http://127.0.0.1:{PAGES_PORT}", options=quiet), scraper, clock, guard)
    for _ in range(3):
        snapshot = await monitor.observe()
    await scraper.close()
    parts = [render(replace(snapshot, target=replace(snapshot.target, name=f"t{number}"))) for number in range(count)]
    stretches: list[float] = []
    last = began = time.process_time()
    size = 0
    async for piece in collector.render(parts, [], collector.TEXT):
        size += len(piece.encode())
        stretches.append(time.process_time() - last)
        last = time.process_time()
    row(f"rendering {count} targets, {size / 1e6:.0f} MB", f"{1000 * (last - began):.0f} ms of CPU",
        f"the loop is held for {1000 * max(stretches):.1f} ms at most", f"{len(stretches)} pieces")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--targets", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--serve-pages", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if args.serve_pages:
        asyncio.run(serve_pages())
        return
    print("| | | | |\n|---|---|---|---|")
    reading()
    pages = running([sys.executable, __file__, "--serve-pages"], f"http://127.0.0.1:{PAGES_PORT}/health")
    with TemporaryDirectory() as name, pages:
        observing(50, args.seconds / 2, Path(name))
        asyncio.run(rendering(args.targets))
        command = exporter(args.targets, "15s", Path(name))
        with running(command, f"http://127.0.0.1:{EXPORTER_PORT}/-/healthy") as process:
            time.sleep(32)
            asyncio.run(fleet(args.targets, args.seconds, process))


if __name__ == "__main__":
    main()
