"""A Prometheus that holds a past: the simulated incident and its recording rules, written as real TSDB blocks."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rules import incident
from rules.scenes import RULES
from rules.servers import program, prometheus

STEP = 15.0
JOBS = {
    "llm-exporter": ("exporter:10140", incident.exporter),
    "llm-remediator": ("remediator:10141", incident.remediator),
}


@dataclass(frozen=True)
class Past:
    """A Prometheus and the time that its data cover, Unix seconds."""

    url: str
    start: float
    end: float


def promtool(*argv: str) -> None:
    done = subprocess.run([program("promtool"), *argv], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def openmetrics(start: float) -> Iterator[str]:
    """Every scrape of the incident, which begins at `start`."""
    for i in range(int(incident.END / STEP) + 1):
        t = i * STEP
        for job, (instance, serve) in JOBS.items():
            for sample in serve(t, lambda moment: start + moment):
                yield incident.render(sample, start + t, job=job, instance=instance)
            yield incident.render(incident.Sample("up", (), 1.0), start + t, job=job, instance=instance)
    yield "# EOF\n"


@contextmanager
def prometheus_with_the_incident(home: Path, now: float) -> Iterator[Past]:
    """The incident ends `now`; the alert rules are evaluated from then on, the recording rules over the whole of it."""
    start = now - incident.END
    text = home / "incident.om"
    text.write_text("\n".join(openmetrics(start)))
    promtool("tsdb", "create-blocks-from", "openmetrics", "--quiet", str(text), str(home / "data"))
    recording = str(RULES / "recording.yml")
    with prometheus(home, "global: {}") as url:
        span = (f"--start={start:.0f}", f"--end={now:.0f}", "--eval-interval=15s", f"--url={url}")
        promtool("tsdb", "create-blocks-from", "rules", *span, f"--output-dir={home / 'recorded'}", recording)
    for block in (home / "recorded").iterdir():
        block.rename(home / "data" / block.name)
    config = f"global: {{evaluation_interval: 1s}}\nrule_files: ['{RULES / 'alerts.yml'}']\n"
    # Backfilled series have no staleness markers: a short look-back stands for them.
    with prometheus(home, config, "--query.lookback-delta=20s") as url:
        yield Past(url, start, now)
