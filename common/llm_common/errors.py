"""The one error that a wrong configuration raises: all its problems at once, for people to read."""

from __future__ import annotations

from collections.abc import Iterable


class ConfigError(Exception):
    """A configuration that cannot be used.

    ``problems`` holds one line each: ``key path: what is wrong; what to do``; ``str()`` joins them.
    """

    def __init__(self, problems: Iterable[str] | str) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))
