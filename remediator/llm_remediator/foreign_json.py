"""JSON that others sent: whatever is odd in it is a fault to be told, never the end of the task that asked."""

from __future__ import annotations

import json
from typing import Any, Final

UNREADABLE: Final = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)
"""What reading a value of another shape raises, numbers too large for a float included."""


def loads(data: bytes | str) -> Any:
    """The value; `ValueError` for anything that is not JSON, or nested too deeply to be read."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def why(fault: BaseException) -> str:
    """One of `UNREADABLE` in words."""
    return f"{fault.args[0]!r} is missing" if isinstance(fault, KeyError) and fault.args else str(fault)
