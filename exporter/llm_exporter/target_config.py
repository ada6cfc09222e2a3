"""The configuration of one target, and how its keys are read; every key may also stand under ``defaults``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from llm_common.config import Reader
from llm_exporter.engines import Engine, by_kind, engines
from llm_exporter.engines.custom import Described
from llm_exporter.judge import Settings
from llm_exporter.scrape import Access
from llm_exporter.witnesses import WitnessConfig, read_witnesses


class Pace(NamedTuple):
    """How often a target is looked at, and how long a look may take; seconds."""

    interval: float
    timeout: float


PACE = Pace(5.0, 4.0)


@dataclass(frozen=True, slots=True)
class Canary:
    """``canary:`` when our own tiny request may be sent, and how."""

    confirm: bool = True
    idle: str = "auto"
    every: float = 900.0
    timeout: float = 30.0
    api_key_file: str | None = None
    model: str | None = None
    without_metrics: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """``ready_limits:`` from where on a target is not ready, and below which share of the limit it is again."""

    queue: float | None = None
    kv: float | None = None
    gpu_memory: float | None = None
    recover: float = 0.9


@dataclass(frozen=True, slots=True)
class Tls:
    """``tls:`` whom to trust."""

    ca_file: str | None = None
    insecure_skip_verify: bool = False


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """Every key that ``defaults`` and a target share; durations in seconds, None = the engine's own default."""

    interval: float | None = None
    timeout: float | None = None
    stalled_after: float = 30.0
    stuck_after: float | None = None
    stuck_after_blind: float = 900.0
    starved_after: float = 600.0
    start_grace: float = 600.0
    blocked_after: float = 300.0
    prefill_blind: bool | None = None
    bearer_token_file: str | None = None
    maintenance: bool = False
    canary: Canary = field(default_factory=Canary)
    ready_limits: Limits = field(default_factory=Limits)
    tls: Tls = field(default_factory=Tls)
    witness: WitnessConfig = field(default_factory=WitnessConfig)

    def pace(self, engine: Engine | None) -> Pace:
        """Interval and timeout for an engine: as given, else the engine's own defaults."""
        own_interval, own_timeout = PACE
        if engine is not None:
            own_interval, own_timeout = engine.interval or own_interval, engine.timeout or own_timeout
        interval = own_interval if self.interval is None else self.interval
        if self.timeout is not None:
            return Pace(interval, min(self.timeout, interval))
        return Pace(interval, own_timeout if self.interval is None else min(own_timeout, 0.9 * interval))

    def settings(self, engine: Engine | None) -> Settings:
        """What the judge needs to know of these keys."""
        return Settings(
            interval=self.pace(engine).interval,
            stalled_after=self.stalled_after,
            stuck_after=self.stuck_after,
            # Whoever is more patient with a sighted source is not less so with a blind one.
            stuck_after_blind=max(self.stuck_after_blind, self.stuck_after or 0.0),
            starved_after=self.starved_after,
            start_grace=self.start_grace,
            blocked_after=self.blocked_after,
            confirm=self.canary.confirm,
            idle_canary=self.canary.idle == "auto",
            canary_every=self.canary.every,
            canary_timeout=self.canary.timeout,
            prefill_blind=self.prefill_blind,
            without_metrics=self.canary.without_metrics,
        )


@dataclass(frozen=True, slots=True)
class Target:
    """One server to watch. `labels` go on ``llm_target_info``; `source` says who named it (``config``, ``file_sd`` …).

    `described` is set where `engine` is one of the configuration's own ``engines``.
    """

    name: str
    url: str
    engine: str = "auto"
    labels: Mapping[str, str] = field(default_factory=dict)
    metrics_path: str | None = None
    options: TargetOptions = field(default_factory=TargetOptions)
    source: str = "config"
    described: Described | None = None

    @property
    def access(self) -> Access:
        """How the scraper reaches it."""
        tls = self.options.tls
        return Access(self.url, self.options.bearer_token_file, tls.ca_file, tls.insecure_skip_verify)


def read_options(reader: Reader, base: TargetOptions, engine: str = "auto") -> TargetOptions:
    """Read the shared keys of a mapping; what it does not give comes from `base`."""
    read = replace(
        base,
        interval=reader.duration("interval", base.interval, low=0.1),
        timeout=reader.duration("timeout", base.timeout, low=0.05),
        stalled_after=reader.duration("stalled_after", base.stalled_after, low=0.1),
        stuck_after=reader.duration("stuck_after", base.stuck_after, low=0.1),
        stuck_after_blind=reader.duration("stuck_after_blind", base.stuck_after_blind, low=0.1),
        starved_after=reader.duration("starved_after", base.starved_after, low=0.1),
        start_grace=reader.duration("start_grace", base.start_grace),
        blocked_after=reader.duration("blocked_after", base.blocked_after, low=0.1),
        prefill_blind=reader.flag("prefill_blind") if reader.has("prefill_blind") else base.prefill_blind,
        bearer_token_file=reader.secret_file("bearer_token_file", base.bearer_token_file),
        maintenance=reader.flag("maintenance", base.maintenance),
        canary=_read_canary(reader.mapping("canary"), base.canary),
        ready_limits=_read_limits(reader.mapping("ready_limits"), base.ready_limits),
        tls=_read_tls(reader.mapping("tls"), base.tls),
        witness=read_witnesses(reader.mapping("witness"), base.witness),
    )
    slowest = max(read.pace(known).interval for known in engines())
    longest = slowest if engine == "auto" else read.pace(by_kind(engine)).interval
    interval = longest if read.interval is None else read.interval
    # What defaults say wrongly is reported there, not again at every target that inherits it.
    paced = reader.has("timeout") or reader.has("interval")
    if paced and read.timeout is not None and read.timeout > interval:
        key = "timeout" if reader.has("timeout") else "interval"
        reader.problem(key, f"timeout ({read.timeout:g}s) must not be longer than interval ({interval:g}s)")
    if reader.has("stuck_after_blind") and read.stuck_after is not None and read.stuck_after > read.stuck_after_blind:
        reader.problem("stuck_after_blind", "must not be shorter than stuck_after: a blind source needs more patience")
    return read


def _read_canary(reader: Reader, base: Canary) -> Canary:
    canary = Canary(
        confirm=reader.flag("confirm", base.confirm),
        idle=reader.text("idle", base.idle, choices=("auto", "off")),
        every=reader.duration("every", base.every, low=1.0),
        timeout=reader.duration("timeout", base.timeout, low=0.1),
        api_key_file=reader.secret_file("api_key_file", base.api_key_file),
        model=reader.text("model", base.model),
        without_metrics=reader.flag("without_metrics", base.without_metrics),
    )
    reader.done()
    return canary


def _read_limits(reader: Reader, base: Limits) -> Limits:
    limits = Limits(
        queue=reader.number("queue", base.queue, low=1),
        kv=reader.number("kv", base.kv, low=0.01, high=1),
        gpu_memory=reader.number("gpu_memory", base.gpu_memory, low=0.01, high=1),
        recover=reader.number("recover", base.recover, low=0, high=1),
    )
    reader.done()
    return limits


def _read_tls(reader: Reader, base: Tls) -> Tls:
    tls = Tls(
        ca_file=reader.text("ca_file", base.ca_file),
        insecure_skip_verify=reader.flag("insecure_skip_verify", base.insecure_skip_verify),
    )
    if tls.ca_file is not None and reader.has("ca_file") and not Path(tls.ca_file).is_file():
        reader.problem("ca_file", f"{tls.ca_file} is not a file")
    reader.done()
    return tls
