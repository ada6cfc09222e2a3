"""What a source of targets says, in our own terms: the same rules of names, labels, ports and engines for every kind."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from llm_exporter.config import NAME, RESERVED_LABELS
from llm_exporter.engines import engines
from llm_exporter.engines.custom import Described
from llm_exporter.target_config import Target, TargetOptions
from llm_exporter.urls import base_url, default_name

LABEL = "stuckproof.target"
PORT, ENGINE, TEAM = "stuckproof.port", "stuckproof.engine", "stuckproof.team"
DEFAULT_PORT = "8000"


class SourceError(Exception):
    """A source could not be read; the text says which part and why."""


@dataclass(frozen=True, slots=True)
class Found:
    """One reading of a source.

    Attributes:
        targets: What is to be watched; two may have one name.
        problems: What is not watched and why, for people.
        whole: False if a part could not be read: what is missing in `targets` may still be there.
    """

    targets: Sequence[Target]
    problems: Sequence[str] = ()
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Template:
    """What all discovered targets have from the configuration: its `defaults`, and the engines that it describes."""

    defaults: TargetOptions = field(default_factory=TargetOptions)
    described: Mapping[str, Described] = field(default_factory=dict)

    def target(
        self,
        url: str,
        labels: Mapping[str, str],
        *,
        name: str | None = None,
        engine: str = "auto",
        metrics_path: str | None = None,
    ) -> Target:
        """A target; ``ValueError`` says what is wrong with it."""
        base = base_url(url)
        name = default_name(base) if name is None else name
        if NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is no name of a target")
        if metrics_path is not None and re.fullmatch(r"/\S*", metrics_path) is None:
            raise ValueError(f"{metrics_path!r} is no path of a metrics page, which begins with /")
        known = ("auto", *(entry.kind for entry in engines()), *self.described)
        if engine not in known:
            raise ValueError(f"engine {engine!r} is not one of {', '.join(known)}")
        return Target(name, base, engine, shown(labels), metrics_path, self.defaults, described=self.described.get(engine))

    def workload(
        self, own_name: str, address: str, named: str, notes: Mapping[str, str], labels: Mapping[str, str], port: str
    ) -> Target:
        """A container or pod that says itself what it is.

        Args:
            own_name: Its name where it runs.
            address: Its IP address.
            named: The value of ``stuckproof.target``: the target's name, or ``true`` for its own.
            notes: Where it says port, engine and team.
            labels: More labels for ``llm_target_info``.
            port: The port if it says none.
        """
        port = notes.get(PORT, port)
        if re.fullmatch(r"[0-9]+", port) is None:
            raise ValueError(f"{PORT}={port!r} is no port")
        host = f"[{address}]" if ":" in address else address
        team = {"team": notes[TEAM]} if TEAM in notes else {}
        name = own_name if named in ("", "true") else named
        return self.target(f"http://{host}:{port}", {**labels, **team}, name=name, engine=notes.get(ENGINE, "auto"))


def shown(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Labels of a discovery as they may stand on ``llm_target_info``.

    What the exporter or Prometheus sets itself gets the prefix ``exported_``, as Prometheus does with labels that clash;
    what cannot be a label's name is made one. Those that begin with two underscores speak to the discovery, not to people.
    """
    found: dict[str, str] = {}
    for label, value in labels.items():
        if label.startswith("__"):
            continue
        name = re.sub(r"[^a-zA-Z0-9_]", "_", label)
        if not name or name[0].isdigit():
            name = f"_{name}"
        found.setdefault(f"exported_{name}" if name in RESERVED_LABELS else name, value)
    return found


def bare(url: str) -> str:
    """A URL without what may be secret in it."""
    return re.sub(r"//[^/@?]+@", "//", url).partition("?")[0]
