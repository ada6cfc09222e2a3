"""The judge: pure functions from what was seen to what is said. No clock, no network, no logging."""

from .history import History, LaneHistory
from .model import (
    WORST_FIRST,
    Bound,
    CanaryOutcome,
    CanaryRequest,
    Evidence,
    Facts,
    LaneEvidence,
    LaneVerdict,
    LoopEvidence,
    Observation,
    Settings,
    State,
    Verdict,
    Witness,
)
from .target import judge

__all__ = [
    "WORST_FIRST",
    "Bound",
    "CanaryOutcome",
    "CanaryRequest",
    "Evidence",
    "Facts",
    "History",
    "LaneEvidence",
    "LaneHistory",
    "LaneVerdict",
    "LoopEvidence",
    "Observation",
    "Settings",
    "State",
    "Verdict",
    "Witness",
    "judge",
]
