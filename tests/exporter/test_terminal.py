"""The live table: redrawn with colours on a terminal, plain changes elsewhere, and no server steers the terminal."""

from __future__ import annotations

import io
from dataclasses import replace

from llm_exporter.judge import State, Verdict
from llm_exporter.snapshot import Snapshot
from llm_exporter.target_config import Target
from llm_exporter.terminal import Table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def snapshot(state: State, reason: str) -> Snapshot:
    known = Snapshot(Target("one", "http://a:1"), interval=5.0, looked=1.0, looked_at=1_796_000_000.0)
    return replace(known, verdict=Verdict(state, reason))


def test_a_terminal_gets_the_whole_table_with_colours_in_place() -> None:
    out = Terminal()
    Table(out).show([snapshot(State.STUCK, "nothing moved")])
    assert out.getvalue().startswith("\x1b[H\x1b[2J")
    assert "one" in out.getvalue()
    assert "\x1b[1;31mstuck" in out.getvalue()
    assert "nothing moved" in out.getvalue()


def test_a_file_gets_a_line_per_change_and_no_escape() -> None:
    out = io.StringIO()
    table = Table(out)
    for state in (State.BUSY, State.BUSY, State.STALLED, State.BUSY):
        table.show([snapshot(state, "why")])
    lines = out.getvalue().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == ["busy: why", "stalled: why", "busy: why"]
    assert "\x1b" not in out.getvalue()


def test_what_a_server_says_cannot_steer_the_terminal() -> None:
    out = Terminal()
    Table(out).show([snapshot(State.UNKNOWN, "\x1b]0;owned\x07\r\nfake")])
    assert "\x1b]0" not in out.getvalue()
    assert "\x07" not in out.getvalue()
