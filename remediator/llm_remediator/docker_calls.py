"""What the runtimes on a Docker host share: one look for one act, ping, and answers read into outcomes."""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from llm_remediator.containers import Container, RuntimeInfo
from llm_remediator.docker_api import DockerApi, Reply, uses_tls
from llm_remediator.docker_facts import version_warnings
from llm_remediator.foreign_json import UNREADABLE, why
from llm_remediator.outcome import Outcome, Status, failed
from llm_remediator.socket_rules import PROXY_HEADER

T = TypeVar("T")

KILL_WAIT = 14.0
"""After the grace dockerd waits 10 s for SIGKILL, 2 s for a direct one, 2 s more (moby `kill.go`)."""
START_MARGIN = 46.0
"""For the start after it: a GPU runtime hook takes seconds, a mount on a busy disk more."""
INSPECT_VALID = 60.0
"""An id may be acted on for so long after this runtime inspected it."""


class Looked:
    """Remembers the last look at each id: one look is good for one act, and not for long."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seen: dict[str, tuple[float, Container]] = {}

    def note(self, container: Container) -> None:
        """It was inspected just now."""
        self._seen[container.id] = (self._monotonic(), container)

    def forget(self, container_id: str) -> None:
        """The last look failed: what was seen before it is no basis for an act."""
        self._seen.pop(container_id, None)

    def take(self, container_id: str) -> tuple[Container | None, Outcome[None]]:
        """What was seen, for the one act that may follow; else None, and why."""
        at, container = self._seen.pop(container_id, (0.0, None))
        if container is None or self._monotonic() - at > INSPECT_VALID:
            why = f"{container_id[:12]!r} was not inspected in the last {INSPECT_VALID:g} s: look before acting"
            return None, failed(Status.UNAVAILABLE, why)
        return container, Outcome(Status.OK)


async def ping(api: DockerApi, wall: Callable[[], float] = time.time) -> Outcome[RuntimeInfo]:
    """Negotiate the API version; learn what the engine is and how far its clock is off."""
    before = wall()
    reply = await api.negotiate()
    if not reply.ok:
        return failed(reply.status, reply.detail, reply.seconds)
    raw = reply.get().json()
    version = str(raw.get("Version", "unknown"))
    warnings = list(version_warnings(version))
    skew = _skew(reply.get(), before, wall())
    if skew is not None and abs(skew) > 5:
        warnings.append(f"the clock of Docker host {api.host.name} differs by {skew:+.0f} s: start times are wrong by it")
    if not api.host.url.startswith("unix://") and not uses_tls(api.host) and PROXY_HEADER not in reply.get().headers:
        warnings.append(
            f"Docker host {api.host.name} is spoken to without TLS: fine for a socket proxy in a network of its own, "
            "else whoever reaches that port is root there"
        )
    return Outcome(Status.OK, RuntimeInfo(version, api.version or "", tuple(warnings), skew), seconds=reply.seconds)


def read(reply: Outcome[Reply], reader: Callable[[Any], T]) -> Outcome[T]:
    """The JSON answer as `reader` reads it; what it cannot read is `REFUSED`."""
    if not reply.ok:
        return failed(reply.status, reply.detail, reply.seconds)
    try:
        return Outcome(Status.OK, reader(reply.get().json()), seconds=reply.seconds)
    except UNREADABLE as exc:
        return failed(Status.REFUSED, f"the answer cannot be read: {why(exc)}", reply.seconds)


def said(reply: Outcome[Reply]) -> Outcome[None]:
    """How a call without a result ended."""
    return Outcome(reply.status, None, reply.detail, reply.seconds)


def _skew(reply: Reply, before: float, after: float) -> float | None:
    """Daemon's clock less ours in seconds, from the Date header (whole seconds); None if it sent none."""
    try:
        theirs = parsedate_to_datetime(reply.headers.get("Date", "")).timestamp()
    except (ValueError, TypeError):
        return None
    if before - 1 <= theirs <= after:
        return 0.0
    return theirs + 0.5 - (before + after) / 2
