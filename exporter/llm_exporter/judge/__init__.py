"""The judge: pure functions from what was seen to what is said. No clock, no network, no logging.

In the order in which it is best read:

- `lane`: the verdict on one lane, strongest evidence first; `bounds`: how long flat evidence is borne; `starvation`: the
  engine moves, yet users get nothing.
- `watch`: what moved since the last look; `held`: what work is held; `history`: what is remembered.
- `canaries`: when one tiny request is asked for, and what its answer or silence means.
- `target`: from one observation to the verdict of the whole target (`judge`, the only entry); `identity`: is it the same
  process; `answers`: what HTTP tells beside the metrics.
- `observation`: what is given; `verdict`: what is said; `words`: how numbers are said.
"""

from .history import History, LaneHistory
from .observation import (
    CanaryOutcome,
    CanaryRequest,
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
from .verdict import WORST_FIRST, Bound, Evidence, LaneVerdict, State, Verdict

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
