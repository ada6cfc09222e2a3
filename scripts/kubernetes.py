"""Makes deploy/kubernetes/prometheus-operator from rules/ and dashboards/: `python scripts/kubernetes.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
OUT = ROOT / "deploy" / "kubernetes" / "prometheus-operator"
HEAD = "# Made by scripts/kubernetes.py from {source}; change that, and run the script.\n"
PART = {"app.kubernetes.io/part-of": "stuckproof"}


class Text(str):
    """Text that YAML shows as a block, so that a reader sees lines."""

    __slots__ = ()


yaml.SafeDumper.add_representer(
    Text, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")
)


def prometheus_rule() -> dict[str, Any]:
    """All groups of rules/*.yml as one PrometheusRule."""
    groups: list[Any] = []
    for name in ("recording", "alerts"):
        groups += yaml.safe_load((ROOT / "rules" / f"{name}.yml").read_text())["groups"]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "stuckproof", "labels": PART},
        "spec": {"groups": groups},
    }


def dashboards() -> list[dict[str, Any]]:
    """A ConfigMap per dashboard, with the label that Grafana's sidecar looks for."""
    maps = []
    for path in sorted((ROOT / "dashboards").glob("*.json")):
        json.loads(path.read_text())
        maps.append({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"stuckproof-dashboard-{path.stem}", "labels": PART | {"grafana_dashboard": "1"}},
            "data": {path.name: Text(path.read_text())},
        })  # fmt: skip
    return maps


def rendered() -> dict[Path, str]:
    """Every generated file and its text."""

    def dump(documents: list[dict[str, Any]]) -> str:
        return yaml.safe_dump_all(documents, sort_keys=False, width=10**6, allow_unicode=True)

    return {
        OUT / "prometheusrule.yaml": HEAD.format(source="rules/") + dump([prometheus_rule()]),
        OUT / "dashboards.yaml": HEAD.format(source="dashboards/") + dump(dashboards()),
    }


def main() -> None:
    """Write them."""
    for path, text in rendered().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
