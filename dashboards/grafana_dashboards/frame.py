"""What all dashboards share: variables, links between them, annotations, the outer frame."""

from __future__ import annotations

from typing import Any

from grafana_dashboards.panels import DATASOURCE, Json, layout

TAG = "stuckproof"
UIDS = {"fleet": "stuckproof-fleet", "target": "stuckproof-target", "remediation": "stuckproof-remediation"}


def variable(name: str, label: str, query: str, *, several: bool = True) -> Json:
    """A variable filled from the data; `several` allows many values and All."""
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": several,
        "includeAll": several,
        "allValue": ".+" if several else None,
        "current": {"text": "All", "value": "$__all"} if several else {},
    }


def datasource_variable() -> Json:
    """Which Prometheus."""
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "regex": "",
        "refresh": 1,
        "multi": False,
        "includeAll": False,
        "current": {},
    }


def annotation(name: str, expr: str, colour: str, title: str, text: str) -> Json:
    """Marks in every panel where `expr` is above zero; `text` may use its labels."""
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": colour,
        "expr": expr,
        "step": "15s",
        "titleFormat": title,
        "textFormat": text,
        "tagKeys": "target,reason",
        "useValueForTime": False,
    }


def dashboard(
    key: str, title: str, description: str, variables: list[Json], rows: list[list[Json]], annotations: list[Json]
) -> Json:
    """A whole dashboard with a uid that stays."""
    links: list[dict[str, Any]] = [
        {
            "type": "link",
            "title": name.capitalize(),
            "url": f"/d/{uid}",
            "icon": "dashboard",
            "keepTime": True,
            "includeVars": True,
            "targetBlank": False,
            "tooltip": f"Stuckproof: {name}",
        }
        for name, uid in UIDS.items()
        if name != key
    ]
    return {
        "uid": UIDS[key],
        "title": title,
        "description": description,
        "tags": [TAG],
        "schemaVersion": 39,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "",
        "templating": {"list": [datasource_variable(), *variables]},
        "annotations": {"list": annotations},
        "links": links,
        "panels": layout(rows),
    }
