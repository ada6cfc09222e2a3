"""A reader of mappings that collects every problem before anybody gives up."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, overload

from llm_common.durations import format_duration, parse_duration
from llm_common.secrets import read_secret

from .forms import Form


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()


class Reader:
    """Reads one mapping of a configuration; what is wrong goes to ``problems`` with its key path.

    A missing key without a default, or a value of the wrong kind, is a problem and yields a harmless
    value, so that reading goes on and all problems are found. The caller raises ``ConfigError(problems)``
    at the end if there are any.
    """

    def __init__(self, problems: list[str], path: str, mapping: object) -> None:
        self.problems = problems
        self.path = path
        self._values: Mapping[Any, Any] = {}
        self._known: set[str] = set()
        if isinstance(mapping, Mapping):
            self._values = mapping
        elif mapping is not None:
            problems.append(f"{path or 'the file'}: must be a mapping of keys to values, not {_kind(mapping)}")

    def where(self, key: str) -> str:
        """The full path of a key of this mapping."""
        return f"{self.path}.{key}" if self.path else key

    def problem(self, key: str, message: str) -> None:
        """Record what is wrong with a key; ``message`` says what, and what to do."""
        self.problems.append(f"{self.where(key) if key else self.path or 'the file'}: {message}")

    def has(self, key: str) -> bool:
        """Whether the key is given with a value other than null."""
        self._known.add(key)
        return self._values.get(key) is not None

    def raw(self, key: str) -> object:
        """The value as YAML gave it, or None."""
        self._known.add(key)
        return self._values.get(key)

    def _missing(self, key: str, default: object) -> bool:
        """Whether the default speaks; a required key that is missing becomes a problem."""
        if self.has(key):
            return False
        if default is REQUIRED:
            self.problem(key, "is required")
        return True

    @overload
    def text(
        self,
        key: str,
        default: str | _Required = ...,
        choices: Sequence[str] | None = ...,
        form: Form | None = ...,
    ) -> str: ...
    @overload
    def text(self, key: str, default: None, choices: Sequence[str] | None = ..., form: Form | None = ...) -> str | None: ...
    def text(
        self,
        key: str,
        default: str | _Required | None = REQUIRED,
        choices: Sequence[str] | None = None,
        form: Form | None = None,
    ) -> str | None:
        """A non-empty string, one of ``choices`` or of a ``form`` where given."""
        if self._missing(key, default):
            return "" if isinstance(default, _Required) else default
        value = self._values[key]
        harmless = default if isinstance(default, str) else ""
        if isinstance(value, bool) and choices and ("on" in choices or "off" in choices):
            value = "on" if value else "off"  # YAML 1.1 reads a bare on/off as a boolean
        if not isinstance(value, str):
            self.problem(key, f'must be text, not {_kind(value)}; put it in quotes: "{value}"')
            return harmless
        if not value.strip():
            self.problem(key, "is empty")
            return harmless
        if choices is not None and value not in choices:
            close = difflib.get_close_matches(value, choices, n=1)
            meant = f"; did you mean {close[0]}?" if close else ""
            self.problem(key, f"{value!r} is not one of {', '.join(choices)}{meant}")
            return harmless
        if form is not None and re.fullmatch(form.pattern, value) is None:
            self.problem(key, f"{value!r} must be {form.words}")
            return harmless
        return value

    @overload
    def duration(self, key: str, default: float | _Required = ..., low: float = ...) -> float: ...
    @overload
    def duration(self, key: str, default: None, low: float = ...) -> float | None: ...
    def duration(self, key: str, default: float | _Required | None = REQUIRED, low: float = 0.0) -> float | None:
        """Seconds of a duration as Prometheus writes it, at least ``low``."""
        if self._missing(key, default):
            return 0.0 if isinstance(default, _Required) else default
        value = self._values[key]
        harmless = default if isinstance(default, (int, float)) else low
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            self.problem(key, f"must be a duration such as 30s or 5m, not {_kind(value)}")
            return harmless
        try:
            seconds = parse_duration(str(value))
        except ValueError as error:
            self.problem(key, str(error))
            return harmless
        if seconds < low:
            self.problem(key, f"{value} is too short; at least {format_duration(low)}")
            return harmless
        return seconds

    @overload
    def number(
        self, key: str, default: float | _Required = ..., low: float | None = ..., high: float | None = ...
    ) -> float: ...
    @overload
    def number(self, key: str, default: None, low: float | None = ..., high: float | None = ...) -> float | None: ...
    def number(
        self,
        key: str,
        default: float | _Required | None = REQUIRED,
        low: float | None = None,
        high: float | None = None,
    ) -> float | None:
        """A finite number within the bounds, both included."""
        if self._missing(key, default):
            return 0.0 if isinstance(default, _Required) else default
        value = self._values[key]
        harmless = float(default) if isinstance(default, (int, float)) else (low or 0.0)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            self.problem(key, f"must be a number, not {_kind(value)}")
            return harmless
        if (low is not None and value < low) or (high is not None and value > high):
            self.problem(key, f"{value} is out of range; {_range(low, high)}")
            return harmless
        return float(value)

    @overload
    def integer(self, key: str, default: int | _Required = ..., low: int | None = ..., high: int | None = ...) -> int: ...
    @overload
    def integer(self, key: str, default: None, low: int | None = ..., high: int | None = ...) -> int | None: ...
    def integer(
        self,
        key: str,
        default: int | _Required | None = REQUIRED,
        low: int | None = None,
        high: int | None = None,
    ) -> int | None:
        """A whole number within the bounds, both included."""
        value = self._values.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            self.has(key)
            self.problem(key, f"must be a whole number, not {_kind(value)}")
            return default if isinstance(default, int) else (low or 0)
        number = self.number(key, default, low, high)
        return None if number is None else int(number)

    def flag(self, key: str, default: bool | _Required = REQUIRED) -> bool:
        """True or false."""
        harmless = default is True
        if self._missing(key, default):
            return harmless
        value = self._values[key]
        if not isinstance(value, bool):
            self.problem(key, f"must be true or false, not {_kind(value)}")
            return harmless
        return value

    def strings(self, key: str, default: Sequence[str] | _Required = REQUIRED) -> list[str]:
        """A list of non-empty strings."""
        if self._missing(key, default):
            return [] if isinstance(default, _Required) else list(default)
        value = self._values[key]
        if not isinstance(value, list):
            self.problem(key, f"must be a list, not {_kind(value)}; write [{value}]")
            return []
        for index, entry in enumerate(value):
            if not isinstance(entry, str) or not entry.strip():
                self.problem(f"{key}[{index}]", f"must be text, not {_kind(entry)}")
        return [entry for entry in value if isinstance(entry, str) and entry.strip()]

    def text_mapping(self, key: str) -> dict[str, str]:
        """A mapping of text to text, such as labels; empty if absent. Numbers and booleans become text."""
        if not self.has(key):
            return {}
        value = self._values[key]
        if not isinstance(value, Mapping):
            self.problem(key, f"must be a mapping of text to text, not {_kind(value)}")
            return {}
        result = {}
        for name, entry in value.items():
            if not isinstance(name, str) or isinstance(entry, (list, dict)) or entry is None:
                self.problem(f"{key}.{name}", f"must be text, not {_kind(entry)}")
            else:
                result[name] = str(entry).lower() if isinstance(entry, bool) else str(entry)
        return result

    def mapping(self, key: str) -> Reader:
        """The reader of a mapping below this one; an absent one reads as empty."""
        return Reader(self.problems, self.where(key), self.raw(key))

    def items(self, key: str) -> list[Reader]:
        """A reader for each mapping of a list; an absent list is empty."""
        value = self.raw(key)
        if value is None:
            return []
        if not isinstance(value, list):
            self.problem(key, f"must be a list, not {_kind(value)}")
            return []
        readers = []
        for index, entry in enumerate(value):
            path = f"{self.where(key)}[{index}]"
            if entry is None:
                self.problems.append(f"{path}: is empty")
            readers.append(Reader(self.problems, path, entry))
        return readers

    def secret_file(self, key: str, default: str | None = None) -> str | None:
        """The path of a file that holds a secret (see ``read_secret``); unreadable or empty is a problem."""
        path = self.text(key, default)
        if path is not None and self.has(key):
            try:
                read_secret(path)
            except ValueError as error:
                self.problem(key, str(error))
        return path

    def done(self) -> None:
        """Report keys that nobody asked for, with the nearest known one."""
        for key in self._values:
            if key not in self._known:
                self.problem(str(key), f"unknown key{_did_you_mean(str(key), sorted(self._known))}")


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {value!r}"
    if isinstance(value, list):
        return "a list"
    return "a mapping" if isinstance(value, Mapping) else type(value).__name__


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"from {low} to {high}"
    return f"at least {low}" if low is not None else f"at most {high}"


def _did_you_mean(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known here: {', '.join(known)}" if known and len(known) <= 40 else ""
