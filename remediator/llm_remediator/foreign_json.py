"""JSON that others sent: whatever is odd in it is a fault to be told, never the end of the task that asked."""

from __future__ import annotations

import json
import re
from typing import Any, Final

UNREADABLE: Final = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)
"""What reading a value of another shape raises, numbers too large for a float included."""
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def loads(data: bytes | str) -> Any:
    """The value; `ValueError` for anything that is not JSON in UTF-8, or nested too deeply to be read.

    Half a character (a lone surrogate such as `\\ud800`) is refused too: it could neither be stored nor sent on.
    """
    text = data if isinstance(data, str) else data.decode()
    try:
        value = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def why(fault: BaseException) -> str:
    """One of `UNREADABLE` in words."""
    return f"{fault.args[0]!r} is missing" if isinstance(fault, KeyError) and fault.args else str(fault)
