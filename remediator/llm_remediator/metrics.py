"""`/metrics`: rendered from the service's views at each scrape, so that no number can be left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from llm_remediator import names
from llm_remediator.names import Metric
from llm_remediator.service import Service, TargetView


class WebhookCounts:
    """What the web server counts itself."""

    def __init__(self) -> None:
        self.codes: Counter[str] = Counter({"202": 0, "400": 0, "401": 0, "503": 0})
        self.truncated = 0


class RemediationCollector(Collector):
    """Reads a `Service` when scraped; nothing is cached."""

    def __init__(self, service: Service, webhooks: WebhookCounts) -> None:
        self._service = service
        self._webhooks = webhooks

    def describe(self) -> Iterable[Family]:
        """Nothing: registration must not read the service before it runs."""
        return ()

    def collect(self) -> Iterator[Family]:
        """All families of `names.ALL`."""
        yield from self._own()
        yield from self._counts()
        yield from self._targets(self._service.targets())

    def _own(self) -> Iterator[Family]:
        seen = self._service.overview()
        yield _gauge(names.BUILD_INFO, [((seen.version,), 1)])
        yield _gauge(names.MODE, [((mode,), float(mode == seen.mode)) for mode in ("observe", "act")])
        yield _gauge(names.BREAKER_OPEN, [((), float(seen.breaker_open))])
        yield _gauge(names.JOURNAL_WRITABLE, [((), float(seen.journal_writable))])
        yield _gauge(names.LAST_RECONCILE, _known((), seen.last_reconcile))
        yield _gauge(names.EXPORTER_UP, [((), float(seen.exporter_up))])
        yield _gauge(names.ALERTMANAGER_UP, [((k,), float(v)) for k, v in seen.alertmanager_up.items()])
        yield _gauge(names.DOCKER_UP, [((k,), float(v)) for k, v in seen.docker_up.items()])
        yield _counter(names.NOTIFY_FAILURES, [((), seen.notify_failures)])
        yield _counter(names.TASK_DEATHS, [((k,), v) for k, v in seen.task_deaths.items()])
        yield _counter(names.WEBHOOK_REQUESTS, [((k,), v) for k, v in sorted(self._webhooks.codes.items())])
        yield _counter(names.WEBHOOK_TRUNCATED, [((), self._webhooks.truncated)])

    def _counts(self) -> Iterator[Family]:
        counted = self._service.counters()
        yield _counter(names.DECISIONS, sorted(counted.decisions.items()))
        yield _counter(names.ACTIONS, sorted(counted.actions.items()))
        yield _counter(names.FOREIGN_STARTS, [((k,), v) for k, v in counted.foreign_starts.items()])
        yield _downtimes(counted.downtimes)

    def _targets(self, targets: Iterable[TargetView]) -> Iterator[Family]:
        views = list(targets)

        def flag(metric: Metric, values: Iterable[bool]) -> Family:
            return _gauge(metric, [((v.name,), float(x)) for v, x in zip(views, values, strict=True)])

        yield flag(names.IN_PROGRESS, [v.in_progress for v in views])
        yield flag(names.LATCHED, [v.latched for v in views])
        yield flag(names.AWAITING_APPROVAL, [bool(v.awaiting_approval) for v in views])
        yield flag(names.PAUSED, [v.paused_until is not None for v in views])
        yield flag(names.FOREIGN_OWNER, [bool(v.foreign_owner) for v in views])
        yield flag(names.WRONG_CONTAINER, [v.wrong_container for v in views])
        yield _gauge(names.BUDGET_REMAINING, [((v.name,), float(v.budget_remaining)) for v in views])
        yield _gauge(names.COOLDOWN_UNTIL, [s for v in views for s in _known((v.name,), v.cooldown_until)])
        yield _gauge(names.LAST_RESTART, [s for v in views for s in _known((v.name,), v.last_restart)])
        yield _gauge(names.NEXT_GATE, [((v.name, v.next_gate), 1) for v in views])


def registry(service: Service, webhooks: WebhookCounts) -> CollectorRegistry:
    """A registry with our families only (no process metrics of the library's default one)."""
    found = CollectorRegistry(auto_describe=False)
    found.register(RemediationCollector(service, webhooks))
    return found


Samples = Iterable[tuple[tuple[str, ...], float]]


def _known(labels: tuple[str, ...], value: float | None) -> list[tuple[tuple[str, ...], float]]:
    return [] if value is None else [(labels, value)]


def _gauge(metric: Metric, samples: Samples) -> Family:
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _counter(metric: Metric, samples: Samples) -> Family:
    family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _downtimes(downtimes: Mapping[str, tuple[float, ...]]) -> Family:
    family = HistogramMetricFamily(names.DOWNTIME.name, names.DOWNTIME.help, labels=names.DOWNTIME.labels)
    for target, values in downtimes.items():
        buckets = [(f"{b}", float(sum(v <= b for v in values))) for b in names.DOWNTIME_BUCKETS]
        family.add_metric((target,), [*buckets, ("+Inf", float(len(values)))], sum(values))
    return family
