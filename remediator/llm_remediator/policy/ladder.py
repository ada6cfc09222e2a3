"""Which remedy is next: the ladder of the configuration, one rung up after each attempt that did not help."""

from __future__ import annotations

from llm_remediator.history import Result
from llm_remediator.policy.limits import streak
from llm_remediator.snapshot import Snapshot


def remedy(snapshot: Snapshot) -> str:
    """The remedy of the next attempt. An attempt without a call tried nothing; the last rung stays the last."""
    rules = snapshot.target.rules
    tried = [a for a in streak(snapshot.history, rules, snapshot.now) if a.result is not Result.ABANDONED]
    return rules.remedies[min(len(tried), len(rules.remedies) - 1)]
