"""The judge: pure functions from what was seen to what is said. No clock, no network, no logging."""

from .history import History, LaneHistory
from .observation import (
    CanaryOutcome,
    CanaryResult,
    Facts,
    Failure,
    LaneEvidence,
    LoopEvidence,
    Observation,
    Reach,
    Settings,
    Witness,
)
from .target import judge
from .verdict import WORST_FIRST, Bound, CanaryRequest, Evidence, LaneVerdict, State, Verdict

__all__ = [
    "WORST_FIRST",
    "Bound",
    "CanaryOutcome",
    "CanaryRequest",
    "CanaryResult",
    "Evidence",
    "Facts",
    "Failure",
    "History",
    "LaneEvidence",
    "LaneHistory",
    "LaneVerdict",
    "LoopEvidence",
    "Observation",
    "Reach",
    "Settings",
    "State",
    "Verdict",
    "Witness",
    "judge",
]
