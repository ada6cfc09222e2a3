"""A witness that is configured and does not testify is said once, not at every look: the verdict goes without it."""

from __future__ import annotations

import logging
import re

_log = logging.getLogger("llm.witness")


class Silence:
    """What was last said of one witness's silence. Of its URL a user and password are not said."""

    def __init__(self, witness: str) -> None:
        self._witness = re.sub(r"//[^/@\s]+@", "//", witness)
        self._told: str | None = None

    def because(self, words: str) -> None:
        """It does not testify, and why; said when that changes."""
        if words != self._told:
            self._told = words
            _log.warning("%s does not testify: %s", self._witness, words)

    def ends(self) -> None:
        """It testifies."""
        if self._told is not None:
            self._told = None
            _log.info("%s testifies again", self._witness)
