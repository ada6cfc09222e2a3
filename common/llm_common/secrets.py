"""Secrets live in files, are read when they are used, and never show in an error or a log."""

from __future__ import annotations

from pathlib import Path


def read_secret(path: str | Path) -> str:
    """The one line in a secret file, stripped; ``ValueError`` says what is wrong with the file."""
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text") from error
    if not text:
        raise ValueError(f"{path} is empty")
    if any(ord(character) < 32 for character in text):
        raise ValueError(f"{path} has more than one line or control characters; a header cannot carry it")
    return text
