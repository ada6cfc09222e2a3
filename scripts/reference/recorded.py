"""What the code itself says of its configuration and its commands: read by running it, so that it cannot be forgotten."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from llm_common.config import REQUIRED, Reader, format_duration
from llm_exporter import config as exporter_config
from llm_remediator import config as remediator_config

EXPORTER_SAMPLE: Mapping[str, Any] = {
    "defaults": {"prefill_blind": True},
    "targets": [{"url": "http://a:1", "witness": {"dcgm": {"url": "http://d:1"}, "nvml": {}, "docker": {"container": "c"}}}],
    "engines": [{"name": "own", "running": "r", "progress": ["p"], "waiting": ["w"]}],
    "discovery": {"file_sd": [{"files": ["x"]}], "http_sd": [{"url": "http://a"}], "docker": [{}], "kubernetes": [{}]},
}


def remediator_samples() -> Sequence[Mapping[str, Any]]:
    """Documents that together reach every key."""
    endpoint = {"url": "http://127.0.0.1:10140"}
    base: dict[str, Any] = {
        "exporter": endpoint,
        "alertmanagers": [endpoint],
        "notify": [endpoint],
        "grafana": endpoint,
        "journal": "/j",
        "docker": {"hosts": {"NAME": {"url": "unix:///var/run/docker.sock"}}},
        "commands": {"NAME": {"argv": ["/x"]}},
        "kubernetes": {"api": "https://api:6443"},
        "discovery": {"docker": [{}]},
        "defaults": {"windows": [{"from": "08:00", "to": "18:00"}]},
    }
    places: Sequence[Mapping[str, Any]] = (
        {"docker": {"compose_project": "p", "compose_service": "s", "host": "NAME"}},
        {"swarm": {"service": "s", "host": "NAME"}},
        {"kubernetes": {"selector": "a=b"}},
        {"command": "NAME"},
    )
    return [{**base, "targets": [{"name": "t", **place}]} for place in places]


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a configuration as its reader asks for it."""

    path: str
    kind: str
    default: str
    choices: tuple[str, ...] = ()


def exporter_keys() -> Sequence[Key]:
    """Every key of exporter.yml, in the order in which it is read."""
    return _keys([lambda: exporter_config.read(EXPORTER_SAMPLE, [], ())])


def remediator_keys() -> Sequence[Key]:
    """Every key of remediator.yml."""

    def reading(sample: Mapping[str, Any]) -> Callable[[], object]:
        return lambda: remediator_config.parse(sample)

    return _keys([reading(sample) for sample in remediator_samples()])


def _keys(reads: Sequence[Callable[[], object]]) -> Sequence[Key]:
    found: dict[str, Key] = {}

    def note(reader: Reader, key: str, kind: str, default: object, choices: Sequence[str] = ()) -> None:
        path = reader.where(key).replace("[0]", "[]")
        found.setdefault(path, Key(path, kind, _default(kind, default), tuple(choices)))

    with _noting(note):
        for read in reads:
            read()
    return list(found.values())


@contextmanager
def _noting(note: Callable[..., None]) -> Iterator[None]:
    def wrapped(name: str, kind: str) -> Any:
        original = getattr(Reader, name)

        def method(self: Reader, key: str, *args: Any, **options: Any) -> Any:
            default = args[0] if args else options.get("default", None if name == "secret_file" else REQUIRED)
            note(self, key, kind, default, options.get("choices") or ())
            return original(self, key, *args, **options)

        return method

    kinds = {
        "text": "text", "duration": "duration", "number": "number", "integer": "whole number", "flag": "true or false",
        "strings": "list of text", "secret_file": "file",
    }  # fmt: skip
    with patch.multiple(Reader, **{name: wrapped(name, kind) for name, kind in kinds.items()}):
        original_mapping = Reader.text_mapping

        def text_mapping(self: Reader, key: str) -> dict[str, str]:
            note(self, key, "text by name", {})
            return original_mapping(self, key)

        with patch.object(Reader, "text_mapping", text_mapping):
            yield


def _default(kind: str, value: object) -> str:
    if value is REQUIRED:
        return "required"
    if value is None or value in ([], (), {}):
        return ""
    if kind == "duration" and isinstance(value, (int, float)):
        return format_duration(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


class _CaughtError(Exception):
    """Carries a parser out of a command."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def parser_of(main: Callable[[list[str]], object], words: list[str]) -> argparse.ArgumentParser:
    """The argument parser of a command, caught when it is about to parse."""

    def parse_args(self: argparse.ArgumentParser, *_: object) -> None:
        raise _CaughtError(self)

    with patch.object(argparse.ArgumentParser, "parse_args", parse_args):
        try:
            main(words)
        except _CaughtError as caught:
            return caught.parser
    raise AssertionError(f"{words} parses no arguments")
