"""The live table of ``watch``: colours and redrawing on a terminal only."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from llm_common.terminal import printable
from llm_exporter.judge import State
from llm_exporter.snapshot import SHOWN_FIRST, Snapshot

_COLOURS = {
    **dict.fromkeys((State.STUCK, State.FAILED, State.DOWN), "\x1b[1;31m"),
    **dict.fromkeys((State.STALLED, State.STARVED, State.UNREACHABLE, State.UNKNOWN), "\x1b[33m"),
    **dict.fromkeys((State.BUSY, State.IDLE), "\x1b[32m"),
}
_RESET = "\x1b[0m"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_FOOT = "Ctrl-C ends this; no request is sent, only metrics are read."


class Table:
    """Prints the targets; on a terminal in place, elsewhere one line for every change of state."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        # A dumb terminal, such as an editor's shell, is no place to redraw; NO_COLOR is the common wish of its user.
        self._tty = out.isatty() and os.environ.get("TERM") != "dumb"
        self._colours = not os.environ.get("NO_COLOR")
        self._last: dict[str, State | None] = {}

    def show(self, snapshots: Sequence[Snapshot]) -> None:
        """Show the targets as they are now."""
        if self._tty:
            # Line by line over the old table, never a cleared screen in between: that would flicker.
            lines = self._lines(snapshots, shutil.get_terminal_size())
            self._out.write(_HOME + "\n".join(line + _REST_OF_LINE for line in lines) + _REST_OF_SCREEN)
        else:
            for snapshot in snapshots:
                state = snapshot.verdict.state if snapshot.looked is not None else None
                if state is not None and self._last.get(snapshot.name) is not state:
                    self._last[snapshot.name] = state
                    stamp = time.strftime("%H:%M:%S", time.localtime(snapshot.looked_at))
                    self._out.write(f"{stamp} {snapshot.name} {printable(snapshot.verdict.sentence)}\n")
        self._out.flush()

    def close(self) -> None:
        """Leave the last table standing, with the shell's prompt below it."""
        if self._tty:
            self._out.write("\n")
            self._out.flush()

    def _lines(self, snapshots: Sequence[Snapshot], size: os.terminal_size) -> list[str]:
        """Never more lines than the terminal has, nor longer ones: both would scroll."""
        shown, more = list(snapshots), ""
        room = max(1, size.lines - 3)
        if len(shown) > room:
            shown = sorted(shown, key=lambda snapshot: SHOWN_FIRST.index(snapshot.verdict.state))[:room]
            more = f"{len(snapshots) - room} more, none worse. "
        column = max([len("TARGET"), *(len(snapshot.name) for snapshot in snapshots)])
        column = min(column, max(len("TARGET"), size.columns // 2))
        lines = [_cut(f"{'TARGET':<{column}}  {'STATE':<11}  VERDICT", size.columns)]
        for snapshot in shown:
            state = snapshot.verdict.state
            line = f"{_cut(snapshot.name, column):<{column}}  {state.value:<11}  {printable(snapshot.verdict.reason)}"
            colour = _COLOURS.get(state, "") if self._colours else ""
            lines.append(_coloured(_cut(line, size.columns), column + 2, len(state.value), colour))
        return [*lines, "", _cut(f"{more}{_FOOT}", size.columns)]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def _coloured(line: str, begin: int, length: int, colour: str) -> str:
    end = begin + length
    return f"{line[:begin]}{colour}{line[begin:end]}{_RESET}{line[end:]}" if colour else line
