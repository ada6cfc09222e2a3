"""What is known of the configuration in force."""

from __future__ import annotations

from dataclasses import dataclass, field

from llm_exporter.config import Config


@dataclass(slots=True)
class ReloadState:
    """The configuration in force, and how its last reading went."""

    config: Config
    hash: str
    succeeded_at: float
    successful: bool = True
    discovery_up: dict[str, bool] = field(default_factory=dict)
