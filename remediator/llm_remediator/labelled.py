"""Targets that containers name themselves: both labels are needed, and still exactly one container.

``stuckproof.target=NAME`` says which target of the exporter a container is (``true``: the one of its own name),
``stuckproof.restart=allowed`` that it may be restarted. What is restarted is found again at the moment of the act, by the
first label or by that name: two containers with one name are refused like any other ambiguity.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping

from llm_remediator.containers import ALLOWED, RESTART_LABEL, ContainerRuntime, Selector
from llm_remediator.ports import Clock
from llm_remediator.rules import Backend, Rules, Target
from llm_remediator.settings import LabelledHost, TargetBook

log = logging.getLogger("llm.remediator.labelled")

NAME_LABEL = "stuckproof.target"
OPT_IN = f"{RESTART_LABEL}={ALLOWED}"
KEPT = 3600.0
"""Seconds for which a target stays after its container was last seen: a deployment must not reset what is known of it."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@-]{0,199}")


class Labelled:
    """Follows the labels of some Docker hosts into the target book.

    Args:
        book: Gets the targets.
        hosts: Which hosts, and how often.
        runtimes: A runtime per host name.
        rules: What such a target is allowed.
        clock: Time.
    """

    def __init__(
        self,
        book: TargetBook,
        hosts: tuple[LabelledHost, ...],
        runtimes: Mapping[str, ContainerRuntime],
        rules: Rules,
        clock: Clock,
    ) -> None:
        self._book = book
        self._hosts = hosts
        self._runtimes = runtimes
        self._rules = rules
        self._clock = clock
        self._seen: dict[str, tuple[float, Target]] = {}

    async def run(self) -> None:
        """Follow for ever."""
        while True:
            await self._clock.sleep(min(host.refresh for host in self._hosts))
            await self.refresh()

    async def refresh(self) -> None:
        """Read the labels once; a host that does not answer keeps what it said last."""
        await asyncio.gather(*(self._read(host) for host in self._hosts))
        now = self._clock.monotonic()
        before = [target.name for target in self._book]
        self._seen = {name: entry for name, entry in self._seen.items() if now - entry[0] <= KEPT}
        self._book.take([target for _, target in self._seen.values()])
        after = [target.name for target in self._book]
        if before != after:
            log.info("targets are now %s", ", ".join(after) or "none")

    async def _read(self, host: LabelledHost) -> None:
        runtime, now = self._runtimes[host.host], self._clock.monotonic()
        found = await runtime.find(Selector(label=OPT_IN))
        if not found.ok:
            log.warning(
                "the labels of Docker host %s cannot be read, what they said last stays: %s", host.host, found.detail
            )
            return
        for match in found.get():
            box = await runtime.inspect(match.id)
            name = box.get().labels.get(NAME_LABEL) if box.ok else None
            if name is None:
                continue
            selector = Selector(label=f"{NAME_LABEL}={name}")
            if name == "true":
                name = match.name
                selector = Selector(container=name)
            if _NAME.fullmatch(name) is None:
                log.warning("container %s: label %s=%r is no target's name", match.name, NAME_LABEL, name)
                continue
            known = self._seen.get(name)
            if known is not None and known[1].host != host.host and now - known[0] < host.refresh * 3:
                log.warning("target %s is named on %s and on %s; the first stays", name, known[1].host, host.host)
                continue
            self._seen[name] = (now, Target(name, Backend.DOCKER, host.host, (selector,), self._rules))
