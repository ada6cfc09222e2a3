"""The live table: redrawn with colours on a terminal, plain changes elsewhere, and no server steers the terminal."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest

from llm_exporter.judge import State, Verdict
from llm_exporter.snapshot import SHOWN_FIRST, Snapshot
from llm_exporter.target_config import Target
from llm_exporter.terminal import Table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _size(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COLUMNS": "80", "LINES": "24", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)


def snapshot(state: State, reason: str, name: str = "one") -> Snapshot:
    known = Snapshot(Target(name, "http://a:1"), interval=5.0, looked=1.0, looked_at=1_796_000_000.0)
    return replace(known, verdict=Verdict(state, reason))


def test_a_terminal_gets_the_whole_table_with_colours_in_place() -> None:
    out = Terminal()
    Table(out).show([snapshot(State.STUCK, "nothing moved")])
    assert out.getvalue().startswith("\x1b[H")
    assert out.getvalue().endswith("\x1b[K\x1b[J")
    assert "one" in out.getvalue()
    assert "\x1b[1;31mstuck\x1b[0m" in out.getvalue()
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


def plain(out: io.StringIO) -> list[str]:
    return re.sub(r"\x1b\[[0-9;]*[mKHJ]", "", out.getvalue()).split("\n")


def test_it_fits_the_terminal_and_what_is_left_out_is_not_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "8")
    monkeypatch.setenv("COLUMNS", "40")
    out = Terminal()
    many = [snapshot(State.BUSY, "works " * 20, f"target-{n}.{'x' * 60}") for n in range(20)]
    Table(out).show([*many, snapshot(State.STUCK, "nothing moved", "last")])
    lines = plain(out)
    assert len(lines) == 8
    assert max(map(len, lines)) == 40
    assert lines[1].split() == ["last", "stuck", "noth…"]
    assert lines[2].split()[:2] == ["target-0.xxxxxxxxxx…", "busy"]
    assert lines[-1].startswith("16 more, none worse. ")


def test_every_state_has_a_place_in_the_order() -> None:
    assert sorted(SHOWN_FIRST) == sorted(State)


def test_no_color_and_a_dumb_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    Table(out).show([snapshot(State.STUCK, "nothing moved")])
    assert "stuck" in out.getvalue()
    assert "\x1b[1;31m" not in out.getvalue()
    monkeypatch.setenv("TERM", "dumb")
    out = Terminal()
    table = Table(out)
    table.show([snapshot(State.STUCK, "nothing moved")])
    table.close()
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().count("\n") == 1
