"""The metrics that exporter and remediator really serve, from their own tables."""

from __future__ import annotations

from dataclasses import dataclass

from llm_exporter import names as exporter
from llm_remediator import names as remediator


@dataclass(frozen=True)
class Metric:
    """`kind` is counter, gauge or histogram; `labels` those of every sample; `open_labels`: the configuration adds more."""

    name: str
    kind: str
    labels: frozenset[str]
    open_labels: bool = False


_GAUGES = {"info", "stateset", "gauge"}
SCRAPE_LABELS = frozenset({"job", "instance", "cluster", "namespace"})
"""What the scrape configuration may add to every series."""


def exported() -> dict[str, Metric]:
    """Sample name -> metric; a histogram by its three sample names; `up`, which Prometheus makes itself, too."""
    found = {"up": Metric("up", "gauge", frozenset())}
    for family in (*exporter.TARGET_FAMILIES, *exporter.OWN_FAMILIES):
        kind = "gauge" if family.kind in _GAUGES else family.kind
        found[family.name] = Metric(family.name, kind, frozenset(family.labels), family.name == "llm_target_info")
    for metric in remediator.ALL:
        labels = frozenset(metric.labels)
        if metric.kind == "histogram":
            for suffix, more in (("_bucket", {"le"}), ("_sum", set()), ("_count", set())):
                found[metric.name + suffix] = Metric(metric.name + suffix, "counter", labels | more)
        else:
            kind = "gauge" if metric.kind in _GAUGES else metric.kind
            found[metric.name] = Metric(metric.name, kind, labels)
    return found
