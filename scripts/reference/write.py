"""Writes docs/reference from the code: metrics, configuration keys, commands, HTTP. A test proves that it is current.

Run it with the project's Python: ``python scripts/reference/write.py``.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / package) for package in ("common", "exporter", "heartbeat", "remediator", "scripts/reference")]

import recorded  # noqa: E402 - found beside this file

from llm_exporter import cli as exporter_cli  # noqa: E402
from llm_exporter.names import OWN_FAMILIES, TARGET_FAMILIES  # noqa: E402
from llm_exporter.web import Web as ExporterWeb  # noqa: E402
from llm_heartbeat.metrics import TABLE as HEARTBEAT_FAMILIES  # noqa: E402
from llm_remediator import cli as remediator_cli  # noqa: E402
from llm_remediator.names import ALL as REMEDIATOR_METRICS  # noqa: E402
from llm_remediator.web import RemediatorWeb as RemediatorWeb  # noqa: E402

OUTPUT = ROOT / "docs" / "reference"
HEAD = "<!-- Written by scripts/reference/write.py from the code. -->\n\n"
Row = Sequence[str]


def meanings() -> Mapping[str, Mapping[str, Any]]:
    """The hand-written half: what every key and path means."""
    loaded: Mapping[str, Mapping[str, Any]] = yaml.safe_load((Path(__file__).parent / "meanings.yml").read_text())
    return loaded


def table(heads: Row, rows: Iterable[Row]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def metrics() -> str:
    """docs/reference/metrics.md."""
    return (
        HEAD
        + "# Metrics\n\nAll values are as of the last look at the target, never of the scrape; a target that was not looked"
        " at for three intervals has `llm_up 0`, state `unknown`, its counters and timestamps, and nothing else."
        " Units are in the names;"
        " ratios are 0 to 1.\n\n"
        'A heartbeat inside an engine exports some of these names without `target`: select `{target!=""}`.\n\n'
        "## Exporter, per target and lane\n\n"
        + _metrics_table((f.name, f.kind, f.labels, f.meaning) for f in TARGET_FAMILIES)
        + "\n## Exporter, about itself\n\n"
        + _metrics_table((f.name, f.kind, f.labels, f.meaning) for f in OWN_FAMILIES)
        + "\n## Remediator\n\n"
        + _metrics_table((m.name, m.kind, m.labels, m.help) for m in REMEDIATOR_METRICS)
        + "\n## Heartbeat, inside the serving process\n\n"
        + _metrics_table(
            (name, kind if kind in ("counter", "histogram") else "gauge", labels, meaning)
            for name, (kind, meaning, labels) in HEARTBEAT_FAMILIES.items()
        )
    )


def _metrics_table(families: Iterable[tuple[str, str, Sequence[str], str]]) -> str:
    return table(
        ("metric", "type", "labels", "meaning"),
        ((f"`{name}`", kind, ", ".join(f"`{label}`" for label in labels), text) for name, kind, labels, text in families),
    )


def config() -> str:
    """docs/reference/config.md."""
    said = meanings()
    return (
        HEAD
        + "# Configuration\n\nDurations as Prometheus writes them (`30s`, `1h30m`). Unknown and duplicate keys are errors,"
        " and all errors are reported at once with their paths. `llm-exporter` reads its file anew on SIGHUP; a bad one"
        " keeps the old configuration. `llm-remediator` reads its own at start only.\n\n##"
        " exporter.yml\n\n"
        + _keys_table(exporter_keys(), said["exporter_config"])
        + "\n## remediator.yml\n\n"
        + _keys_table(remediator_keys(), said["remediator_config"])
        + "\n## Web config file (`--web.config.file`)\n\nThe subset of Prometheus' format that both services read:"
        " `tls_server_config` with `cert_file`, `key_file`, `client_ca_file`, `client_auth_type`, `min_version`;"
        " `basic_auth_users` (bcrypt; `pip install 'stuckproof[basic-auth]'`, which our images have); and our own key"
        " `bearer_token_file` (in a browser: any user, the token as password)."
        " `/-/healthy` and `/-/ready` stay open. Renewed certificates and tokens are taken up without a reload.\n"
    )


def exporter_keys() -> Sequence[recorded.Key]:
    """The keys of exporter.yml that need words: not those of a target that `defaults` has too."""
    return _without_repeats(recorded.exporter_keys())


def remediator_keys() -> Sequence[recorded.Key]:
    """The same of remediator.yml; the keys of an endpoint are told once, at `exporter`."""
    places = ("alertmanagers[].", "notify[].", "grafana.")
    return [key for key in _without_repeats(recorded.remediator_keys()) if not key.path.startswith(places)]


def _without_repeats(keys: Sequence[recorded.Key]) -> Sequence[recorded.Key]:
    defaults = {key.path.removeprefix("defaults.") for key in keys if key.path.startswith("defaults.")}
    return [key for key in keys if key.path.removeprefix("targets[].") not in defaults or "targets[]." not in key.path]


def _keys_table(keys: Sequence[recorded.Key], said: Mapping[str, Any]) -> str:
    known = {key.path: key for key in keys}
    rows = []
    for path, meaning in said.items():
        key = known.get(path, recorded.Key(path, "", ""))
        default, text = meaning if isinstance(meaning, list) else (key.default, meaning)
        kind = ", ".join(f"`{choice}`" for choice in key.choices if choice not in ("own", "NAME")) or key.kind
        rows.append((f"`{path}`", kind, default, text))
    return table(("key", "kind", "default", "meaning"), rows)


def cli() -> str:
    """docs/reference/cli.md."""
    parts = [
        HEAD
        + "# Commands\n\nExit status 2: the command line or the configuration is wrong; the reason is on standard error.\n"
    ]
    exporter_commands = ([], ["check"], ["record"], ["replay"], ["watch"])
    remediator_commands = ([], *([name] for name in remediator_cli.COMMANDS.split(", ")))
    for main, commands in ((exporter_cli.main, exporter_commands), (remediator_cli.main, remediator_commands)):
        parts += [_command(recorded.parser_of(main, list(words))) for words in commands]
    return "\n".join(parts)


def _command(parser: argparse.ArgumentParser) -> str:
    rows = [row for row in map(_option, parser._actions) if row is not None]
    words = f"\n{parser.description}\n" if parser.description else ""
    return f"## {parser.prog}\n{words}\n{table(('option', 'default', 'meaning'), rows)}"


def _option(action: argparse.Action) -> Row | None:
    if action.dest == "help":
        return None
    value = str(
        action.metavar or ("{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper())
    )
    flags = ", ".join(action.option_strings)
    name = f"{flags} {value}" if flags and action.nargs != 0 else flags or value
    default = "" if action.default in (None, False, "", argparse.SUPPRESS) or action.nargs == 0 else str(action.default)
    if isinstance(action.default, float):
        default = recorded.format_duration(action.default)
    if action.dest == "shard":
        default = "0/1"
    # The engines of a later version must not make an older page wrong in a hundred places.
    name = name if action.dest != "engine" else "--engine KIND"
    return f"`{name}`", default, (action.help or "").replace("%(default)s", default)


def http() -> str:
    """docs/reference/http.md."""
    said = meanings()
    return (
        HEAD + "# HTTP\n\nTimes are Unix seconds or null. With a web config file every path but `/-/healthy` and `/-/ready`"
        " needs credentials.\n\n"
        "## llm-exporter (`:10140`)\n\n"
        + _routes_table(routes(ExporterWeb), said["exporter_http"])
        + "\n## llm-remediator (`127.0.0.1:10141`)\n\n"
        + _routes_table(routes(RemediatorWeb), said["remediator_http"])
    )


def routes(kind: type[Any]) -> Sequence[str]:
    """Method and path of every route of a service's application."""
    app = kind.app(object.__new__(kind))
    found = []
    for route in app.router.routes():
        info = route.resource.get_info()
        path = info.get("path") or info["formatter"]
        if route.method != "HEAD":
            found.append(f"{route.method} {path}")
    return found


def without_pattern(path: str) -> str:
    """A route's path as aiohttp tells it: `{action:pause|resume}` is `{action}`."""
    return re.sub(r":[a-z|]+}", "}", path)


def _routes_table(known: Sequence[str], said: Mapping[str, str]) -> str:
    plain = {without_pattern(path): (path, text) for path, text in said.items()}
    return table(("request", "answer"), ((f"`{plain[path][0]}`", plain[path][1]) for path in known))


PAGES: Mapping[str, Callable[[], str]] = {"metrics.md": metrics, "config.md": config, "cli.md": cli, "http.md": http}


if __name__ == "__main__":
    OUTPUT.mkdir(exist_ok=True)
    for name, render in PAGES.items():
        (OUTPUT / name).write_text(render())
