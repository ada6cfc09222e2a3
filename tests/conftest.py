"""What all tests share: in CI a skipped test is a failed one, and no test is timed."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

# A busy machine is no failure: examples may take as long as they need, the test's own timeout still holds.
settings.register_profile("stuckproof", deadline=None)
settings.load_profile("stuckproof")

# A shell's background job ignores Ctrl-C, and so would every program that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _no_skips() -> bool:
    return os.environ.get("STUCKPROOF_NO_SKIP") == "1"


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn whole modules that skip themselves into errors where everything can be had."""
    report = yield
    if report.skipped and _no_skips():
        report.outcome = "failed"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn skips into failures where everything can be had (`STUCKPROOF_NO_SKIP=1`)."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and _no_skips():
        why: Any = report.longrepr
        reason = why[2] if isinstance(why, tuple) else str(why)
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} may not be skipped here: {reason}"
    return report
