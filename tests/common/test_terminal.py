"""Text of others cannot steer a terminal."""

from __future__ import annotations

import pytest

from llm_common.terminal import printable, printable_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, with ümläute and 漢字", "plain, with ümläute and 漢字"),
        ("\x1b]0;owned\x07title", "?]0;owned?title"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("up\x1b[2A\x1b[2K", "up?[2A?[2K"),
        ("one\r\ntwo\tthree", "one??two?three"),
        ("right\u202eto left \x9b31m", "right?to left ?31m"),
    ],
)
def test_a_line(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_lines_stay_lines() -> None:
    assert printable_lines("a\r\n\tb\x1b[2J\n\x1b[31mc\x1b[0m\td") == "a\n        b?[2J\nc       d"
