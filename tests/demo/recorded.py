"""Pages of recorded real servers, and which series moved between two of them."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

RECORDINGS = Path(__file__).parent.parent / "recordings"


@dataclass(frozen=True)
class Recording:
    """The good pages of one recording, by second."""

    pages: dict[float, str]

    @classmethod
    def load(cls, name: str) -> Recording:
        with gzip.open(RECORDINGS / f"{name}.jsonl.gz", "rt") as lines:
            observations = [json.loads(line) for line in lines]
        return cls(
            {o["t"]: o["metrics"]["body"] for o in observations if "body" in o.get("metrics", {})},
        )

    def at(self, second: float) -> str:
        """The first page from ``second`` on."""
        return self.pages[min(t for t in self.pages if t >= second)]

    def moved(self, first: float, last: float) -> set[str]:
        return moved(self.at(first), self.at(last))

    @property
    def last(self) -> str:
        return self.pages[max(self.pages)]


def series(page: str) -> dict[str, float]:
    """vLLM's own series, without the creation times."""
    lines = (line.rsplit(" ", 1) for line in page.splitlines() if line.startswith("vllm:"))
    return {key: float(value) for key, value in lines if "_created{" not in key}


def moved(before: str, after: str) -> set[str]:
    """Names of the vLLM series of which any has another value in ``after``."""
    old, new = series(before), series(after)
    assert old.keys() == new.keys()
    return {key.partition("{")[0] for key in new if old[key] != new[key]}


def value(page: str, name: str, *parts: str) -> float:
    """The sum of the series called ``name`` that carry all label ``parts``."""
    return sum(
        number
        for key, number in series(page).items()
        if key.partition("{")[0] == name and all(part in key for part in parts)
    )
