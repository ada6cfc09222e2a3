"""YAML as a configuration needs it: safe, without keys that stand twice, and with errors that name the place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from llm_common.errors import ConfigError

TYPED = frozenset({"timestamp", "int", "float", "bool"})

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str, name: str, problems: list[str] | None = None) -> object:
    """The document in ``text``; ``ConfigError`` names the lines of bad syntax, or the paths of duplicate keys and of values
    that are not what they look like (``2001-99-99``).

    With `problems`, duplicate keys go there instead, so that they are reported together with everything else.
    """
    loader = _Base(text)
    try:
        node = loader.get_single_node()
        duplicates = list(_duplicates(node, "", set()))
        if unreadable := list(_unreadable(loader, node, "", set())):
            raise ConfigError([f"{name}: {problem}" for problem in unreadable])
        document = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(f"{name}: {where}{error.problem or error.context}; not valid YAML") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: not valid YAML: {error}") from error
    finally:
        loader.dispose()
    if problems is not None:
        problems += duplicates
    elif duplicates:
        raise ConfigError([f"{name}: {problem}" for problem in duplicates])
    return document


def _duplicates(node: Any, path: str, walked: set[Any]) -> Iterator[str]:
    """Keys that stand twice in one mapping, which plain YAML silently lets win.

    What anchors repeat is walked once: they may lead back up, or multiply a short text into billions of nodes.
    """
    if node in walked:
        return
    walked.add(node)
    if isinstance(node, yaml.SequenceNode):
        for index, entry in enumerate(node.value):
            yield from _duplicates(entry, f"{path}[{index}]", walked)
    if not isinstance(node, yaml.MappingNode):
        return
    seen: dict[str, int] = {}
    for key_node, value in node.value:
        key, line = str(key_node.value), key_node.start_mark.line + 1
        where = f"{path}.{key}" if path else key
        if key in seen and key != "<<":
            yield f"{where}: is on line {line} and on line {seen[key]} already; remove one"
        seen.setdefault(key, line)
        yield from _duplicates(value, where, walked)


def _unreadable(loader: Any, node: Any, path: str, walked: set[Any]) -> Iterator[str]:
    """Values that look like, or are tagged as, a date or a number, and are none."""
    if node is None or node in walked:
        return
    walked.add(node)
    if isinstance(node, yaml.SequenceNode):
        for index, entry in enumerate(node.value):
            yield from _unreadable(loader, entry, f"{path}[{index}]", walked)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            where = f"{path}.{key.value}" if path else str(key.value)
            yield from _unreadable(loader, key, where, walked)
            yield from _unreadable(loader, value, where, walked)
    elif (kind := str(node.tag).rpartition(":")[2]) in TYPED:
        try:
            loader.construct_object(node)
        except (ValueError, KeyError, AttributeError):  # PyYAML lets each of them through
            yield f"{path}: {node.value!r} on line {node.start_mark.line + 1} is no {kind}; quote it if it is text"


def load_yaml(path: str | Path, problems: list[str] | None = None) -> object:
    """The document in a file; ``ConfigError`` if it cannot be read, is not YAML, or repeats a key (see `parse_yaml`)."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}") from error
    return parse_yaml(text, str(path), problems)
