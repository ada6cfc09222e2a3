"""``--shard=I/N``: which of several exporters watches a target, by a stable hash of its name."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shard:
    """The `index`-th of `count` exporters, counted from 0."""

    index: int = 0
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """``0/3`` is the first of three; ``ValueError`` otherwise."""
        match = re.fullmatch(r"([0-9]+)/([0-9]+)", text)
        if match is None or not int(match[1]) < int(match[2]):
            raise ValueError(f"{text!r}: write I/N with 0 <= I < N, such as 0/3 for the first of three")
        return cls(int(match[1]), int(match[2]))

    def mine(self, name: str) -> bool:
        """Whether this exporter watches the target of that name."""
        return self.count == 1 or int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % self.count == self.index
