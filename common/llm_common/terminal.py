"""Text of others on a person's terminal: nothing in it may move the cursor, set a title or hide a line."""

from __future__ import annotations

import re

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def printable(text: str) -> str:
    """One line, with `?` for every character that is not printable; colours, which logs are full of, just go."""
    return "".join(c if c.isprintable() else "?" for c in _COLOUR.sub("", text))


def printable_lines(text: str) -> str:
    """The same for text of several lines; tabs become spaces."""
    return "\n".join(printable(_COLOUR.sub("", line).removesuffix("\r").expandtabs()) for line in text.split("\n"))
