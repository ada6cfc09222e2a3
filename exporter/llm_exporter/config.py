"""exporter.yml: which servers to watch and how patiently. Strict: unknown keys are errors, all are reported at once."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from llm_common.config import ConfigError, Reader, load_yaml
from llm_common.config.forms import PATH, Form
from llm_exporter.discovery_config import Discovery, read_discovery
from llm_exporter.engines.custom import Described
from llm_exporter.target_config import Target, TargetOptions, read_options
from llm_exporter.urls import base_url, default_name

NAME = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9._:@\[\]%-]{0,199}")
HIDDEN = r"(token|password|passwd|secret|api_?key|sig|signature)"
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
KIND = Form(r"[a-z][a-z0-9_-]*", "a name of small letters, digits, - and _, which begins with a letter")
SERIES = Form(r"[a-zA-Z_:][a-zA-Z0-9_:]*", "the name of a series as the page writes it, such as my_steps_total")
RESERVED_LABELS = frozenset({"target", "lane", "engine_kind", "version", "model", "prefill_blind", "job", "instance"})


@dataclass(frozen=True, slots=True)
class Config:
    """The whole of exporter.yml."""

    targets: tuple[Target, ...] = ()
    defaults: TargetOptions = field(default_factory=TargetOptions)
    discovery: Discovery = field(default_factory=Discovery)
    max_requests_per_host: int = 32
    engines: tuple[Described, ...] = ()

    def effective(self) -> Mapping[str, Any]:
        """The configuration in the form of its file, with every default filled in and secrets masked."""
        shown = asdict(self)
        shown["targets"] = [target | target.pop("options") for target in shown["targets"]]
        masked: Mapping[str, Any] = _masked(shown)
        return masked

    @property
    def hash(self) -> str:
        """Changes when the effective configuration does."""
        text = json.dumps(asdict(self), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _masked(value: Any) -> Any:
    """Paths of secret files are no secrets; masked is what a label or a URL of a discovery may carry."""
    if isinstance(value, Mapping):
        return {
            key: "<secret>" if entry and re.search(rf"(?i){HIDDEN}$", str(key)) else _masked(entry)
            for key, entry in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_masked(entry) for entry in value]
    if not isinstance(value, str):
        return value
    return re.sub(rf"(?i)([?&][^=&]*{HIDDEN}=)[^&]+", r"\1<secret>", re.sub(r"//[^/@\s]+@", "//<secret>@", value))


def load(path: str, engines: Sequence[str], *, need_targets: bool = True) -> Config:
    """Read exporter.yml; ``ConfigError`` lists everything that is wrong. `engines` are the known engine names."""
    problems: list[str] = []
    config = read(load_yaml(path, problems), problems, engines)
    if need_targets and not config.targets and not config.discovery and not problems:
        problems.append("targets: there are none; list at least one, or configure discovery")
    if problems:
        raise ConfigError(problems)
    return config


def from_urls(urls: Sequence[str]) -> Config:
    """The configuration of a command line that only names URLs."""
    problems: list[str] = []
    targets = []
    for text in urls:
        try:
            base = base_url(text)
        except ValueError as error:
            problems.append(str(error))
            continue
        targets.append(Target(name=default_name(base), url=base, source="command line"))
    if problems:
        raise ConfigError(problems)
    return Config(targets=tuple({target.name: target for target in targets}.values()))


def read(document: object, problems: list[str], engines: Sequence[str]) -> Config:
    """The configuration in a YAML document; what is wrong goes to `problems`."""
    top = Reader(problems, "", document)
    defaults_reader = top.mapping("defaults")
    defaults = read_options(defaults_reader, TargetOptions())
    defaults_reader.done()
    described: dict[str, Described] = {}
    for reader in top.items("engines"):
        entry = _read_engine(reader, engines)
        if entry.kind in described:
            reader.problem("name", f"{entry.kind!r} is the name of another engine of this file already")
        described[entry.kind] = entry
    targets: list[Target] = []
    seen: dict[str, str] = {}
    for reader in top.items("targets"):
        target = _read_target(reader, defaults, engines, described)
        if target is None:
            continue
        if target.name in seen:
            reader.problem("name", f"{target.name!r} is the name of {seen[target.name]} already; names must differ")
        seen.setdefault(target.name, reader.path)
        targets.append(target)
    config = Config(
        targets=tuple(targets),
        defaults=defaults,
        discovery=read_discovery(top.mapping("discovery")),
        max_requests_per_host=top.integer("max_requests_per_host", 32, low=1),
        engines=tuple(described.values()),
    )
    top.done()
    return config


def _read_engine(reader: Reader, known: Sequence[str]) -> Described:
    """``engines[]``: an engine that we do not know, by the names of its series."""
    kind = reader.text("name", form=KIND)
    if kind in ("auto", *known):
        reader.problem("name", f"{kind!r} is an engine that is built in; choose another name")
    progress = reader.strings("progress")
    if not progress:
        reader.problem("progress", "at least one counter that moves with every step is needed")
    described = Described(
        kind=kind,
        progress=tuple(progress) or ("none",),
        running=reader.text("running", form=SERIES),
        waiting=tuple(reader.strings("waiting")),
        lane_labels=tuple(reader.strings("lane_labels", ())),
        kv=reader.text("kv", None, form=SERIES),
        finished=reader.text("finished", None, form=SERIES),
        generation_tokens=reader.text("generation_tokens", None, form=SERIES),
        blind=reader.flag("blind", True),
        metrics_path=reader.text("metrics_path", "/metrics", form=PATH),
        health_path=reader.text("health_path", None, form=PATH),
        canary_path=reader.text("canary_path", None, form=PATH),
    )
    reader.done()
    return described


def _read_target(
    reader: Reader, defaults: TargetOptions, engines: Sequence[str], described: Mapping[str, Described]
) -> Target | None:
    url = reader.text("url")
    base = ""
    if url:
        try:
            base = base_url(url)
        except ValueError as error:
            reader.problem("url", str(error))
    name = reader.text("name", default_name(base) if base else "?")
    if name != "?" and NAME.fullmatch(name) is None:
        reader.problem("name", f"{name!r} may have letters, digits and . _ : @ - only, and starts with a letter or digit")
    engine = reader.text("engine", "auto", choices=("auto", *engines, *described))
    labels = reader.text_mapping("labels")
    for problem in _label_problems(labels):
        reader.problem("labels", problem)
    metrics_path = reader.text("metrics_path", None, form=PATH)
    options = read_options(reader, defaults, engine)
    reader.done()
    own = described.get(engine)
    return Target(name, base, engine, labels, metrics_path, options, described=own) if base else None


def _label_problems(labels: Mapping[str, str]) -> list[str]:
    """What is wrong with names of labels that shall go on ``llm_target_info``."""
    problems = [f"{name!r} is not a label name" for name in labels if LABEL.fullmatch(name) is None]
    underscores = [name for name in labels if name.startswith("__")]
    problems += [f"{name!r} begins with two underscores, which Prometheus keeps for itself" for name in underscores]
    problems += [f"{name!r} is set by the exporter or by Prometheus" for name in labels if name in RESERVED_LABELS]
    return problems
