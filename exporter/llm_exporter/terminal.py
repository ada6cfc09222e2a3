"""The live table of ``watch``: colours and redrawing on a terminal only."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from llm_exporter.judge import State
from llm_exporter.snapshot import Snapshot

_COLOURS = {
    **dict.fromkeys((State.STUCK, State.FAILED, State.DOWN), "\x1b[1;31m"),
    **dict.fromkeys((State.STALLED, State.STARVED, State.UNREACHABLE, State.UNKNOWN), "\x1b[33m"),
    **dict.fromkeys((State.BUSY, State.IDLE), "\x1b[32m"),
}
_RESET, _CLEAR = "\x1b[0m", "\x1b[H\x1b[2J"


def printable(text: str) -> str:
    """Text from a server without what could steer a terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)


class Table:
    """Prints the targets; on a terminal in place, elsewhere one line for every change of state."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._tty = out.isatty()
        self._last: dict[str, State | None] = {}

    def show(self, snapshots: Sequence[Snapshot]) -> None:
        """Show the targets as they are now."""
        if self._tty:
            self._out.write(_CLEAR + "\n".join(self._lines(snapshots)) + "\n")
        else:
            for snapshot in snapshots:
                state = snapshot.verdict.state if snapshot.looked is not None else None
                if state is not None and self._last.get(snapshot.name) is not state:
                    self._last[snapshot.name] = state
                    stamp = time.strftime("%H:%M:%S", time.localtime(snapshot.looked_at))
                    self._out.write(f"{stamp} {snapshot.name} {printable(snapshot.verdict.sentence)}\n")
        self._out.flush()

    def _lines(self, snapshots: Sequence[Snapshot]) -> list[str]:
        width = shutil.get_terminal_size().columns
        column = max([len("TARGET"), *(len(snapshot.name) for snapshot in snapshots)])
        lines = [f"{'TARGET':<{column}}  {'STATE':<11}  VERDICT"]
        for snapshot in snapshots:
            state = snapshot.verdict.state
            reason = printable(snapshot.verdict.reason)[: max(10, width - column - 15)]
            colour = _COLOURS.get(state, "")
            lines.append(f"{snapshot.name:<{column}}  {colour}{state.value:<11}{_RESET if colour else ''}  {reason}")
        return [*lines, "", "Ctrl-C ends this; no request is sent, only metrics are read."]
