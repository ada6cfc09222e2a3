"""How long may a healthy engine stand still before each rule restarts it?

One server, one request in decode, and a step that takes so many minutes and then goes on (a compile, a grammar).
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.week.play import RULES, play
from benchmarks.week.schedule import HOUR, MINUTE, Arrival, Event, Happening, Schedule
from benchmarks.week.servers import SERVERS

MINUTES = (1, 2, 3, 4, 5, 6, 8, 10, 15)
_BEGIN = 2 * HOUR


def restarted(rule: str, minutes: float) -> bool:
    """Whether the rule restarts a server whose step takes that long."""
    server = replace(SERVERS[1], name="stall")
    arrivals = (Arrival(_BEGIN - 40.0, 300, 2000, HOUR), *(Arrival(_BEGIN + 20.0 * n, 300, 300, HOUR) for n in range(30)))
    stall = Happening(_BEGIN - 10.0, Event.COMPILE, minutes * MINUTE)
    return play(RULES[rule], Schedule(server, 3 * HOUR, arrivals, (stall,), (), ()), seed=1).false_restarts > 0


def table() -> str:
    """Rules by length of the stall."""
    head = "| rule | " + " | ".join(f"{n} min" for n in MINUTES) + " |\n|---|" + ":---:|" * len(MINUTES)
    rows = [f"| {rule} | " + " | ".join("restart" if restarted(rule, n) else "" for n in MINUTES) + " |" for rule in RULES]
    return "\n".join([head, *rows])
