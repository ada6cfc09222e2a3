"""YAML as a configuration needs it: safe, without keys that stand twice, and with errors that name the place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from llm_common.errors import ConfigError

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str, name: str, problems: list[str] | None = None) -> object:
    """The document in ``text``; ``ConfigError`` names the lines of bad syntax or the paths of duplicate keys.

    With `problems`, duplicate keys go there instead, so that they are reported together with everything else.
    """
    loader = _Base(text)
    try:
        node = loader.get_single_node()
        duplicates = list(_duplicates(node, "", set()))
        document = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(f"{name}: {where}{error.problem or error.context}; not valid YAML") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: not valid YAML: {error}") from error
    except AttributeError as error:
        # PyYAML's own slip: it does not expect a text that `!!timestamp` was put before and that is none.
        raise ConfigError(
            f"{name}: not valid YAML: a value is not of the kind that its !!tag says; leave the tag out"
        ) from error
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


def load_yaml(path: str | Path, problems: list[str] | None = None) -> object:
    """The document in a file; ``ConfigError`` if it cannot be read, is not YAML, or repeats a key (see `parse_yaml`)."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}") from error
    return parse_yaml(text, str(path), problems)
