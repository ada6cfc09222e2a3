"""Logging to standard error, as logfmt or JSON, one line an event."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {
    "message",
    "asctime",
    "taskName",
}


class _Formatter(logging.Formatter):
    """Puts time, level, logger, message and the ``extra`` fields of a record on one line."""

    def __init__(self, fmt: Literal["logfmt", "json"]) -> None:
        super().__init__()
        self._json = fmt == "json"

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        fields.update({key: value for key, value in vars(record).items() if key not in _STANDARD})
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        if self._json:
            return json.dumps(fields, default=str)
        return " ".join(f"{key}={_quoted(value)}" for key, value in fields.items())


def _quoted(value: object) -> str:
    text = str(value)
    if text and not any(character in text for character in ' ="\n\r\t\\') and text.isprintable():
        return text
    return json.dumps(text, ensure_ascii=False)


def setup(level: str, fmt: Literal["logfmt", "json"] = "logfmt") -> None:
    """Send records from ``level`` (debug, info, warning, error) up to standard error; replaces handlers."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(fmt))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # A library's own chatter hides ours: the Docker SDK and asyncio log every call at debug.
    for noisy in ("urllib3", "docker", "asyncio", "aiohttp.access"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
