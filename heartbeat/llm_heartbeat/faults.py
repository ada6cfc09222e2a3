"""Errors of our own: logged once a place, counted always, never raised into the server."""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class _Log(logging.LoggerAdapter[logging.Logger]):
    """Our logger. A handler or filter of the application that raises must not raise into the server through us."""

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        with suppress(Exception):  # where logging itself is broken there is no place left to say so
            super().log(level, msg, *args, stacklevel=2, **kwargs)


log = _Log(logging.getLogger("llm_heartbeat"), {})


class Faults:
    """Counts by place. `with faults.passed_by("sources"):` lets an error of ours end the block and nothing else."""

    def __init__(self) -> None:
        # Without a lock, which could be held for ever in a forked child; a race may lose one count.
        self.counts: Counter[str] = Counter()

    @contextmanager
    def passed_by(self, where: str) -> Iterator[None]:
        """Broad on purpose: this code runs inside somebody else's server, which must not fail because of it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - see above; counted and logged
            self.note(where, error)

    def note(self, where: str, error: BaseException | str) -> None:
        """Count one error; the first of each place is logged with its traceback."""
        self.counts[where] += 1
        if self.counts[where] == 1:
            shown = error if isinstance(error, BaseException) else None
            log.warning("%s: passed by: %s (only counted from now on)", where, error, exc_info=shown)
