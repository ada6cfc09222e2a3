"""A lint of PromQL by its syntax tree: what promtool accepts and is wrong all the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import promql_parser as ast

from rules.exported import SCRAPE_LABELS, Metric

RATES = {"rate", "irate", "increase", "resets"}
GAUGE_ONLY = {"deriv", "delta", "idelta", "predict_linear"}
ABSENCE = {"absent", "absent_over_time", "present_over_time", "max_over_time", "timestamp", "changes"}
"""Functions under which a counter's plain value is meant: whether it is there, or its level."""


@dataclass(frozen=True)
class Shape:
    """The labels that a vector can have; None = a scalar. `certain` is False where the configuration may add labels."""

    labels: frozenset[str] | None
    certain: bool = True


def lint(text: str, metrics: Mapping[str, Metric]) -> list[str]:
    """Everything that is wrong with an expression, in words."""
    linter = Linter(metrics)
    linter.shape(ast.parse(text), ())
    return linter.problems


def result_labels(text: str, metrics: Mapping[str, Metric]) -> frozenset[str]:
    """The labels that the expression's result can have."""
    return Linter(metrics).shape(ast.parse(text), ()).labels or frozenset()


def children(node: Any) -> Iterator[Any]:
    """The sub-expressions of a node."""
    if isinstance(node, ast.Call):
        yield from node.args
    elif isinstance(node, ast.BinaryExpr):
        yield from (node.lhs, node.rhs)
    elif isinstance(node, ast.MatrixSelector):
        yield node.vector_selector
    elif isinstance(node, (ast.AggregateExpr, ast.ParenExpr, ast.UnaryExpr, ast.SubqueryExpr)):
        yield node.expr


def selectors(node: Any) -> Iterator[Any]:
    """Every vector selector below a node."""
    if isinstance(node, ast.VectorSelector):
        yield node
    for child in children(node):
        yield from selectors(child)


class Linter:
    """One walk over one expression."""

    def __init__(self, metrics: Mapping[str, Metric]) -> None:
        self.metrics = metrics
        self.problems: list[str] = []

    def shape(self, node: Any, inside: tuple[str, ...]) -> Shape:
        """The labels of this node's result; `inside`: the functions around it, innermost last."""
        if isinstance(node, ast.VectorSelector):
            return self._selector(node, inside)
        if isinstance(node, (ast.NumberLiteral, ast.StringLiteral)):
            return Shape(None)
        if isinstance(node, ast.AggregateExpr):
            return self._aggregate(node, inside)
        if isinstance(node, ast.BinaryExpr):
            return self._binary(node, inside)
        name = (node.func.name,) if isinstance(node, ast.Call) else ()
        found = [self.shape(child, (*inside, *name)) for child in children(node)]
        if isinstance(node, ast.Call) and node.func.name in {"time", "scalar"}:
            return Shape(None)
        vectors = [s for s in found if s.labels is not None]
        return vectors[0] if vectors else Shape(None)

    def _selector(self, node: Any, inside: tuple[str, ...]) -> Shape:
        metric = self.metrics.get(node.name)
        if metric is None:
            self.problems.append(f"{node.name} is not exported")
            return Shape(frozenset(), certain=False)
        self._use(metric, inside)
        known = metric.labels | SCRAPE_LABELS
        matchers = node.matchers.matchers
        for matcher in matchers:
            if matcher.name not in known and not metric.open_labels:
                self.problems.append(f"{metric.name} has no label {matcher.name}")
        if "target" in metric.labels and not any(_names_targets(m) for m in matchers):
            self.problems.append(f'{metric.name} is selected without target!=""')
        return Shape(known, certain=not metric.open_labels)

    def _use(self, metric: Metric, inside: tuple[str, ...]) -> None:
        rated = RATES & set(inside)
        if metric.kind == "gauge" and rated:
            self.problems.append(f"{min(rated)}() of the gauge {metric.name}")
        if metric.kind == "counter" and GAUGE_ONLY & set(inside):
            self.problems.append(f"{min(GAUGE_ONLY & set(inside))}() of the counter {metric.name}")
        if metric.kind == "counter" and not rated and not ABSENCE & set(inside):
            self.problems.append(f"the counter {metric.name} is used without rate() or increase()")

    def _aggregate(self, node: Any, inside: tuple[str, ...]) -> Shape:
        inner = self.shape(node.expr, inside)
        if node.modifier is None:
            return inner if str(node.op) in {"topk", "bottomk"} else Shape(frozenset())
        names = frozenset(node.modifier.labels)
        if str(node.modifier.type).endswith("Without"):
            self.problems.append("without keeps whatever a scrape configuration adds: name the labels with by")
            return inner
        if inner.labels is not None and inner.certain and (missing := names - inner.labels):
            self.problems.append(f"by ({', '.join(sorted(missing))}): no such label in {_head(node.expr)}")
        return inner if str(node.op) in {"topk", "bottomk"} else Shape(names)

    def _binary(self, node: Any, inside: tuple[str, ...]) -> Shape:
        left, right = self.shape(node.lhs, inside), self.shape(node.rhs, inside)
        if left.labels is None or right.labels is None:
            return left if left.labels is not None else right
        matching = node.modifier.matching if node.modifier else None
        names = frozenset(matching.labels) if matching else frozenset()
        including = matching is not None and str(matching.type).endswith("Include")
        if matching is None and left.labels != right.labels and str(node.op) != "or":
            self.problems.append(f"joined without on(): {_head(node.lhs)} with {_head(node.rhs)}")
        for side, shape in ((node.lhs, left), (node.rhs, right)):
            if including and shape.certain and (missing := names - (shape.labels or frozenset())):
                self.problems.append(f"on ({', '.join(sorted(missing))}): no such label in {_head(side)}")
        return self._joined(node, left, right, names if including else None)

    def _joined(self, node: Any, left: Shape, right: Shape, on: frozenset[str] | None) -> Shape:
        """What is left of the labels; `on` None: all, or all but those ignored."""
        card = str(node.modifier.card) if node.modifier else ""
        if str(node.op) in {"and", "or", "unless"} or on is None:
            return left
        many = left if card.endswith("ManyToOne") else right if card.endswith("OneToMany") else None
        if many is None:
            return Shape(on)
        return Shape((many.labels or frozenset()) | frozenset(node.modifier.group_labels or ()), many.certain)


def _names_targets(matcher: Any) -> bool:
    """`target!=""` or `target="x"`: not the series of a heartbeat inside an engine, which have no target."""
    if matcher.name != "target":
        return False
    kind = str(matcher.op).rpartition(".")[2]
    return kind == "NotEqual" if matcher.value == "" else kind in {"Equal", "Re"}


def _head(node: Any) -> str:
    return ", ".join(dict.fromkeys(s.name for s in selectors(node))) or str(node)
