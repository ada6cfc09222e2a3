"""The target's container as Docker sees it: proof that a process exists, since when, and whether it burns CPU."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import docker
from docker.errors import DockerException

from .config import ContainerWitness
from .silence import Silence

TIMEOUT = 3


@dataclass(frozen=True, slots=True)
class ContainerReading:
    """One inspect, and the CPU seconds used so far; times are Unix seconds."""

    status: str
    started: float | None
    oom_killed: bool
    cpu_seconds: float | None = None


class ContainerReader:
    """Asks one Docker host about one container. Blocks: call it in a thread."""

    def __init__(self, config: ContainerWitness) -> None:
        self._config = config
        self._client: Any = None
        self._silence = Silence(f"witness.docker ({config.host})")

    def read(self, with_cpu: bool) -> ContainerReading | None:
        """The container now; None if it cannot be told (no daemon, none or several matches)."""
        try:
            if self._client is None:
                self._client = docker.DockerClient(base_url=self._config.host, version="auto", timeout=TIMEOUT)
            found = self._client.api.containers(all=True, filters=self._config.filters)
            if len(found) != 1:
                self._silence.because(f"{len(found)} containers match {self._config.filters}, one is needed")
                return None
            identity = found[0]["Id"]
            state = self._client.api.inspect_container(identity)["State"]
            cpu = self._cpu(identity) if with_cpu and state.get("Status") == "running" else None
        except (DockerException, OSError) as error:
            self._silence.because(str(error))
            self.close()
            return None
        self._silence.ends()
        return ContainerReading(str(state.get("Status")), unix(state.get("StartedAt")), bool(state.get("OOMKilled")), cpu)

    def _cpu(self, identity: str) -> float | None:
        usage = self._client.api.stats(identity, stream=False, one_shot=True).get("cpu_stats", {}).get("cpu_usage", {})
        total = usage.get("total_usage")
        return total / 1e9 if isinstance(total, int | float) else None

    def close(self) -> None:
        """Give the connection back."""
        if self._client is not None:
            self._client.close()
            self._client = None


def unix(text: object) -> float | None:
    """Docker's RFC 3339 time with nanoseconds as Unix seconds; its zero time is None."""
    if not isinstance(text, str) or text.startswith("0001-"):
        return None
    try:
        return datetime.fromisoformat(re.sub(r"(\.\d{6})\d*", r"\1", text).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
