"""Second looks make the judge more careful or its sentence better, and never fail a look."""

from __future__ import annotations

import json

import pytest
from aiohttp import web

from llm_common.config import Reader
from llm_exporter.engines import Page
from llm_exporter.exposition import read
from llm_exporter.scrape import Scraper
from llm_exporter.witnesses import DcgmWitness, NvmlWitness, WitnessConfig, Witnesses, read_witnesses
from llm_exporter.witnesses.container import ContainerReading, unix
from llm_exporter.witnesses.gpu import GpuReading, Learnt, from_dcgm, hardware, learn, power
from llm_exporter.witnesses.heartbeat import loop_evidence

DCGM = """# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",modelName="x"} 96
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a"} 22
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a"} 75
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-a"} 25
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-a"} 0
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b"} 10
DCGM_FI_DEV_POWER_USAGE{gpu="1",UUID="GPU-b"} 78
DCGM_FI_DEV_XID_ERRORS{gpu="1",UUID="GPU-b"} 79
"""


def config(text: object) -> tuple[WitnessConfig, list[str]]:
    problems: list[str] = []
    return read_witnesses(Reader(problems, "targets[0].witness", text), WitnessConfig()), problems


def test_a_dcgm_page_becomes_readings_of_the_targets_own_gpus() -> None:
    samples = read(DCGM)
    assert from_dcgm(samples, ["GPU-a"]) == (GpuReading("0", memory=0.75, utilization=0.96, watts=22, xid=0),)
    assert [gpu.name for gpu in from_dcgm(samples, [])] == ["0", "1"]
    assert [gpu.name for gpu in from_dcgm(samples, ["1"])] == ["1"]


@pytest.mark.parametrize(
    ("watts", "learnt", "threshold", "high"),
    [
        (22, None, None, None),
        (22, 80, None, False),
        (78, 80, None, True),
        (48, 80, None, True),
        (47, 80, None, False),
        (22, 20, 45.0, False),
        (50, None, 45.0, True),
        (None, 80, 45.0, None),
    ],
)
def test_power_tells_computing_from_spinning(
    watts: float | None, learnt: float | None, threshold: float | None, high: bool | None
) -> None:
    """96 % utilisation at 22 W is a spinning collective; utilisation is not asked."""
    said, words = power([GpuReading("0", utilization=0.96, watts=watts)], Learnt(learnt), threshold)
    assert said is high
    assert (watts is None) == (words == "")


def test_what_computing_draws_is_learnt_only_while_tokens_move() -> None:
    learnt = learn(Learnt(), [GpuReading("0", watts=300)], moving=True)
    assert learnt.computing_watts == 300
    assert learn(learnt, [GpuReading("0", watts=20)], moving=False) == learnt
    assert learn(Learnt(), [], moving=True) == Learnt()


def test_a_fatal_xid_says_that_a_restart_does_not_help() -> None:
    assert hardware([GpuReading("0", xid=0), GpuReading("1", xid=79)], [79]) == (
        "GPU 1: Xid 79; a restart of the process does not mend it"
    )
    assert hardware([GpuReading("1", xid=31)], [79]) is None
    assert hardware([GpuReading("1", xid=None)], [79]) is None


async def test_a_dcgm_exporter_is_asked_and_its_failure_is_no_testimony(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "llm.witness")
    failures = [web.Response(status=500), web.Response(status=500), web.Response(text="<html>")]
    answers = [web.Response(text=DCGM), *failures, web.Response(text=DCGM)]

    async def page(_: web.Request) -> web.Response:
        return answers.pop(0)

    app = web.Application()
    app.router.add_get("/metrics", page)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    scraper = Scraper(4)
    url = f"http://127.0.0.1:{port}/metrics"
    witnesses = Witnesses(WitnessConfig(dcgm=DcgmWitness(url, ("1",), 45.0)), scraper, lambda: 0.0)
    try:
        said = await witnesses.testify(moving=False, suspect=True, timeout=2)
        assert said.witness.power_high is True
        assert said.witness.hardware is not None
        assert "Xid 79" in said.witness.hardware
        for _ in failures:
            said = await witnesses.testify(moving=False, suspect=True, timeout=2)
            assert said.witness.power_high is None
            assert said.gpus == ()
        await witnesses.testify(moving=False, suspect=True, timeout=2)
        told = [record.getMessage().partition(url)[2] for record in caplog.records]
        assert told == [
            ") does not testify: 500", ") does not testify: its page shows none of the GPUs ['1']", ") testifies again",
        ]  # fmt: skip
    finally:
        await scraper.close()
        await runner.cleanup()


async def test_nvml_without_the_library_or_a_gpu_is_no_testimony(caplog: pytest.LogCaptureFixture) -> None:
    scraper = Scraper(4)
    witnesses = Witnesses(WitnessConfig(nvml=NvmlWitness()), scraper, lambda: 0.0)
    for _ in range(2):
        said = await witnesses.testify(moving=False, suspect=False, timeout=1)
        assert said.gpus == ()
    assert len(caplog.records) <= 1, "it says so once"
    await scraper.close()


LIVE = {
    "status": "failed",
    "checks": {"event_loop_lag_ms": 301000.5, "blocked_seconds": 300.2},
    "culprit": {"function": "tokenize", "file": "a.py", "line": 7},
}


@pytest.mark.parametrize(
    ("page", "lag", "culprit"),
    [
        (Page(status=503, body=json.dumps(LIVE)), 301.0005, "tokenize (a.py:7)"),
        (Page(status=200, body='{"checks": {"event_loop_lag_ms": 3}, "culprit": null}'), 0.003, None),
        (Page(status=404, body="{}"), None, None),
        (Page(status=200, body="ok"), None, None),
        (Page(kind="timeout", error="x"), None, None),
        (Page(status=200, body='{"checks": {"event_loop_lag_ms": null}}'), None, None),
        (Page(status=200, body='{"checks": {"event_loop_lag_ms": 1e999, "blocked_seconds": 1e999}}'), None, None),
        (Page(status=200, body='{"checks": {"event_loop_lag_ms": 3, "blocked_seconds": NaN}}'), 0.003, None),
    ],
)
def test_the_heartbeats_body(page: Page, lag: float | None, culprit: str | None) -> None:
    said = loop_evidence(page)
    assert (said.lag if said else None) == lag
    assert (said.culprit if said else None) == culprit
    assert (said.blocked if said else 0.0) == (300.2 if page.status == 503 else 0.0)


def test_cpu_is_a_rate_between_two_looks() -> None:
    now = [100.0]
    witnesses = Witnesses(WitnessConfig(), None, lambda: now[0])  # type: ignore[arg-type]
    assert witnesses._cpu_high(ContainerReading("running", None, False, 50.0)) is None
    now[0] = 110.0
    assert witnesses._cpu_high(ContainerReading("running", None, False, 60.0)) is True
    now[0] = 120.0
    assert witnesses._cpu_high(ContainerReading("running", None, False, 60.5)) is False
    assert witnesses._cpu_high(None) is None


def test_dockers_times() -> None:
    assert unix("2026-11-30T03:26:22.123456789Z") == pytest.approx(1796009182.123456)
    assert unix("0001-01-01T00:00:00Z") is None
    assert unix("yesterday") is None
    assert unix(None) is None


def test_a_container_is_named_in_exactly_one_way() -> None:
    read_config, problems = config({"docker": {"compose_project": "p", "compose_service": "s"}})
    assert not problems
    assert read_config.docker is not None
    assert read_config.docker.filters == {"label": ["com.docker.compose.service=s", "com.docker.compose.project=p"]}
    for wrong in ({}, {"container": "a", "label": "b=c"}, {"compose_project": "p"}):
        _, problems = config({"docker": wrong})
        assert any("one way" in problem for problem in problems)


def test_mistakes_are_named_with_their_path() -> None:
    _, problems = config({"dcgm": {"url": "ftp://x", "fatal_xids": ["seventy"]}, "heartbeat": "9000", "gpu": 1})
    text = "\n".join(problems)
    for place in ("witness.dcgm.url", "witness.dcgm.fatal_xids", "witness.heartbeat", "witness.gpu"):
        assert f"targets[0].{place}" in text
