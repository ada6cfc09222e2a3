"""What happens to a server in its week, drawn once from a seed: the same for every rule that is judged."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.week.servers import Server

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
_WARM_UP = 2 * HOUR
_CLEARANCE = 3 * HOUR
"""No redeployment, crash or sleep begins so near a hang: what ended the hang must be clear."""


class Hang(StrEnum):
    """The real hangs, each from public reports (docs/explanation/simulated-week.md names them)."""

    BUSY_STEP = "step hangs while busy"
    FIRST_STEP = "first step after idle hangs"
    ADMISSION = "scheduler admits nothing"
    DEAD_DECODE = "decode is dead, prefill goes on"
    API = "API process is wedged"


class Event(StrEnum):
    """Everything else that happens to a server without being wrong."""

    REDEPLOY = "redeployment"
    CRASH = "crash"
    SLEEP = "sleep"
    WAKE = "wake"
    COMPILE = "compile"
    FIRST_COMPILE = "compile at the first step after idle"
    LOOP_STALL = "loop stall"
    MASS_ABORT = "all clients leave"


@dataclass(frozen=True)
class Arrival:
    """A request that a client sends."""

    at: float
    prompt: int
    tokens: int
    patience: float
    batch: bool = False


@dataclass(frozen=True)
class Happening:
    """An event or hang; `value` is its length in seconds where it has one."""

    at: float
    what: Event | Hang
    value: float = 0.0


@dataclass(frozen=True)
class Schedule:
    """One server's week, in order of time."""

    server: Server
    length: float
    arrivals: tuple[Arrival, ...]
    happenings: tuple[Happening, ...]
    saturated: tuple[tuple[float, float], ...]
    jobs: tuple[tuple[float, float, int], ...]
    """Batch jobs: begin, end, and how many requests they keep open."""


def draw(server: Server, seed: int, days: float = 7.0, hangs_of_each: int = 1) -> Schedule:
    """The week of one server; counts in `Server` are for seven days and shrink with `days`."""
    chance = random.Random(f"{seed}/{server.name}")
    length = days * DAY

    def times(per_week: int) -> list[float]:
        count = round(per_week * days / 7) if days < 7 else per_week
        return sorted(chance.uniform(_WARM_UP, length - HOUR) for _ in range(max(count, min(per_week, 1))))

    hangs = _hangs(chance, length, hangs_of_each)
    forbidden = [hang.at for hang in hangs]

    def clear(at: float) -> bool:
        return all(abs(at - hang) > _CLEARANCE * min(1.0, days / 7 * 2) for hang in forbidden)

    jobs = tuple((at, at + chance.uniform(1.0, 4.0) * HOUR, chance.randint(2, 4)) for at in times(server.batch_jobs))
    saturated = tuple((at, at + chance.uniform(0.5, 3.0) * HOUR) for at in times(server.saturations))
    sleeps = [night for night in _nights(length, server.sleeps) if clear(night) and clear(night + 6 * HOUR)]
    others = [
        *(Happening(at, Event.REDEPLOY) for at in times(server.redeployments) if clear(at)),
        *(Happening(at, Event.CRASH) for at in times(server.crashes) if clear(at)),
        *(Happening(at, Event.COMPILE, chance.uniform(20.0, 200.0)) for at in times(server.compiles)),
        *(Happening(at, Event.FIRST_COMPILE, chance.uniform(20.0, 200.0)) for at in times(server.first_compiles)),
        *(Happening(at, Event.LOOP_STALL, chance.uniform(5.0, 40.0)) for at in _within(chance, saturated, server, days)),
        *(Happening(at, Event.MASS_ABORT) for at in times(server.mass_aborts)),
        *(Happening(at, Event.SLEEP) for at in sleeps),
        *(Happening(at + 6 * HOUR, Event.WAKE) for at in sleeps),
    ]
    arrivals = [
        *_chat(chance, server, length),
        *_saturation(chance, saturated),
        *(
            Arrival(at, chance.randint(40_000, 200_000), chance.randint(200, 800), 2 * HOUR, batch=True)
            for at in times(server.long_prompts)
        ),
    ]
    return Schedule(
        server,
        length,
        tuple(sorted(arrivals, key=lambda arrival: arrival.at)),
        tuple(sorted([*others, *hangs], key=lambda happening: happening.at)),
        saturated,
        jobs,
    )


def _hangs(chance: random.Random, length: float, of_each: int) -> list[Happening]:
    """Spread evenly, in random order, each at a random place of its stretch."""
    kinds = [kind for kind in Hang for _ in range(of_each)]
    chance.shuffle(kinds)
    stretch = (length - _WARM_UP) / len(kinds)
    return [Happening(_WARM_UP + stretch * (index + chance.uniform(0.2, 0.5)), kind) for index, kind in enumerate(kinds)]


def _nights(length: float, count: int) -> list[float]:
    nights = [day * DAY + 23.5 * HOUR for day in range(int(length // DAY))]
    return [night for night in nights[:count] if night + 6 * HOUR < length]


def _within(chance: random.Random, spans: tuple[tuple[float, float], ...], server: Server, days: float) -> list[float]:
    if not spans:
        return []
    count = math.ceil(server.loop_stalls * days / 7)
    return [chance.uniform(*chance.choice(spans)) for _ in range(count)]


def _chat(chance: random.Random, server: Server, length: float) -> Iterator[Arrival]:
    """Poisson arrivals whose rate follows the day: the most at three in the afternoon, a fifth of it at night."""
    at = 0.0
    peak = server.chat_per_hour / HOUR
    while True:
        at += chance.expovariate(peak)
        if at >= length:
            return
        daytime = 0.6 + 0.4 * math.cos((at % DAY - 15 * HOUR) / DAY * 2 * math.pi)
        if chance.random() < daytime:
            prompt = min(16_000, int(chance.lognormvariate(6.5, 1.0)) + 1)
            yield Arrival(at, prompt, min(2000, int(chance.lognormvariate(5.5, 0.7)) + 1), 300.0)


def _saturation(chance: random.Random, spans: tuple[tuple[float, float], ...]) -> Iterator[Arrival]:
    """Sixty clients, each sending again when it was answered: as a stream of arrivals that keeps a queue standing."""
    for begin, end in spans:
        yield from (Arrival(begin + chance.uniform(0, 20), 900, 400, 900.0) for _ in range(48))
        at = begin
        while at < end:
            at += chance.expovariate(0.32)
            yield Arrival(at, chance.randint(300, 3000), chance.randint(200, 600), 900.0)
