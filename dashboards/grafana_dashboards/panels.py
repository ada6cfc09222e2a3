"""Building blocks: queries, panels, variables, annotations, and the frame of a dashboard.

Absence must look like absence: lines are not joined over gaps, no query fills in zeros, and an empty panel says `no data`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}

STATES: tuple[tuple[str, str], ...] = (
    ("idle", "#5794F2"),
    ("busy", "#73BF69"),
    ("sleeping", "#8AB8FF"),
    ("starting", "#B877D9"),
    ("unknown", "#8E8E8E"),
    ("stalled", "#FADE2A"),
    ("unreachable", "#FF9830"),
    ("down", "#E0B400"),
    ("starved", "#FA6400"),
    ("failed", "#C4162A"),
    ("stuck", "#E02F44"),
)
"""The states in the order of the codes of the recording rule target:llm_health_state:code, 1 first; with their colours."""


@dataclass(frozen=True)
class Query:
    """One PromQL query of a panel. `instant` asks for the present only."""

    expr: str
    legend: str = "{{target}}"
    instant: bool = False


def state_mappings() -> list[Json]:
    """Code of a state -> its name and colour."""
    options = {str(i): {"text": name, "color": colour, "index": i} for i, (name, colour) in enumerate(STATES, 1)}
    return [{"type": "value", "options": options}]


def state_colours() -> list[Json]:
    """Overrides that give a series named after a state that state's colour."""
    return [
        {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
        }
        for name, colour in STATES
    ]


def flag_mappings(no: str, yes: str, good: int) -> list[Json]:
    """0 and 1 as words; the good one is green."""
    colours = ("green", "red") if good == 0 else ("red", "green")
    options = {str(i): {"text": word, "color": colours[i], "index": i} for i, word in enumerate((no, yes))}
    return [{"type": "value", "options": options}]


def code_mappings() -> list[Json]:
    """HTTP codes of a health endpoint as colours."""
    return [
        {"type": "value", "options": {"0": {"text": "no answer", "color": "#8E8E8E", "index": 0}}},
        {"type": "range", "options": {"from": 200, "to": 299, "result": {"color": "green", "index": 1}}},
        {"type": "range", "options": {"from": 300, "to": 499, "result": {"color": "orange", "index": 2}}},
        {"type": "range", "options": {"from": 500, "to": 599, "result": {"color": "red", "index": 3}}},
    ]


def panel(
    kind: str,
    title: str,
    description: str,
    queries: list[Query],
    *,
    unit: str,
    width: int = 12,
    height: int = 8,
    defaults: Json | None = None,
    custom: Json | None = None,
    options: Json | None = None,
    overrides: list[Json] | None = None,
    transformations: list[Json] | None = None,
    links: list[Json] | None = None,
) -> Json:
    """A panel without its place; `layout` gives it one. `unit` is Grafana's name, `short` for plain counts."""
    targets = [
        {
            "refId": chr(ord("A") + i),
            "datasource": DATASOURCE,
            "expr": q.expr,
            "legendFormat": q.legend,
            "instant": q.instant,
            "range": not q.instant,
            "format": "table" if kind == "table" else "time_series",
        }
        for i, q in enumerate(queries)
    ]
    made: Json = {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "targets": targets,
        "fieldConfig": {
            "defaults": {"unit": unit, "noValue": "no data", "custom": custom or {}, **(defaults or {})},
            "overrides": overrides or [],
        },
        "options": options or {},
        "gridPos": {"w": width, "h": height},
    }
    if links:
        made["fieldConfig"]["defaults"]["links"] = links
    return made | ({"transformations": transformations} if transformations else {})


def lines(title: str, description: str, queries: list[Query], unit: str, **more: Any) -> Json:
    """Lines over time, broken where there is no data."""
    custom = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 5, "spanNulls": False, "showPoints": "never"}
    custom |= more.pop("custom", {})
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    defaults = {"min": 0} | more.pop("defaults", {})
    return panel(
        "timeseries", title, description, queries, unit=unit, custom=custom, options=options, defaults=defaults, **more
    )


def beside(name: str, unit: str, other: str, other_unit: str, other_max: float | None = None) -> list[Json]:
    """Overrides for two lines on one panel: `name` on an axis of its own on the right, `other` on the left."""
    left = [{"id": "unit", "value": other_unit}, *([{"id": "max", "value": other_max}] if other_max is not None else [])]
    right = [{"id": "custom.axisPlacement", "value": "right"}, {"id": "unit", "value": unit}]
    return [
        {"matcher": {"id": "byName", "options": each}, "properties": properties}
        for each, properties in ((name, right), (other, left))
    ]


def bars(title: str, description: str, queries: list[Query], unit: str, **more: Any) -> Json:
    """Stacked bars over time, for counts of events."""
    custom = {"drawStyle": "bars", "fillOpacity": 60, "stacking": {"mode": "normal", "group": "A"}}
    return lines(title, description, queries, unit, custom=custom, **more)


def timeline(title: str, description: str, queries: list[Query], mappings: list[Json], **more: Any) -> Json:
    """One row per series, coloured by value; nothing is drawn where nothing is known."""
    return panel(
        "state-timeline",
        title,
        description,
        queries,
        unit="none",
        defaults={"mappings": mappings, "color": {"mode": "thresholds"}, "thresholds": _no_thresholds()},
        custom={"fillOpacity": 80, "lineWidth": 0, "spanNulls": False},
        options={"mergeValues": True, "showValue": "auto", "rowHeight": 0.8, "legend": {"showLegend": False}},
        **more,
    )


def stat(
    title: str,
    description: str,
    query: Query,
    unit: str,
    mappings: list[Json] | None = None,
    text: str = "auto",
    **more: Any,
) -> Json:
    """The present value, large; `text` "name" shows the series' name instead."""
    return panel(
        "stat",
        title,
        description,
        [Query(query.expr, query.legend, instant=True)],
        unit=unit,
        defaults={"mappings": mappings or [], "thresholds": _no_thresholds(), "color": {"mode": "thresholds"}},
        options={
            "reduceOptions": {"calcs": ["lastNotNull"]},
            "textMode": text,
            "colorMode": "background_solid" if mappings else "value",
        },
        **more,
    )


def table(title: str, description: str, columns: list[tuple[str, Query, str, list[Json]]], **more: Any) -> Json:
    """The present values by label, one column per query: (heading, query, unit, mappings)."""
    hide = dict.fromkeys(("Time", "__name__", "job", "instance"), True)
    names = {"Value": columns[0][0]} if len(columns) == 1 else {}
    names |= {f"Value #{chr(ord('A') + i)}": heading for i, (heading, *_) in enumerate(columns)}
    overrides = [
        {
            "matcher": {"id": "byName", "options": heading},
            "properties": [
                {"id": "unit", "value": unit},
                {"id": "mappings", "value": mappings},
                *([{"id": "custom.cellOptions", "value": {"type": "color-background"}}] if mappings else []),
            ],
        }
        for heading, _, unit, mappings in columns
    ]
    return panel(
        "table",
        title,
        description,
        [Query(q.expr, q.legend, instant=True) for _, q, _, _ in columns],
        unit="none",
        defaults={"thresholds": _no_thresholds()},
        overrides=overrides,
        transformations=[
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": hide, "renameByName": names}},
        ],
        **more,
    )


def layout(rows: list[list[Json]]) -> list[Json]:
    """Give every panel its place and number, row under row."""
    placed: list[Json] = []
    y = 0
    for row in rows:
        x = 0
        for made in row:
            size = made["gridPos"]
            placed.append(made | {"id": len(placed) + 1, "gridPos": {"x": x, "y": y, **size}})
            x += size["w"]
        y += max(made["gridPos"]["h"] for made in row)
    return placed


def _no_thresholds() -> Json:
    return {"mode": "absolute", "steps": [{"color": "text", "value": None}]}
