"""Leader election by a Kubernetes Lease: of several remediators only the holder acts; the others say who does.

A holder that cannot renew stops acting before its lease runs out, so that two never act at the same time even when one
cannot reach the API. Clocks are only compared with themselves: a lease counts as expired when it did not change for its
duration by our own monotonic clock.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from llm_common.kube import Kube, KubeError

log = logging.getLogger("llm.remediator.lease")


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """``kubernetes.lease``: its name and how long it is held without being renewed, in seconds."""

    name: str
    namespace: str | None = None
    duration: float = 30.0


class Lease:
    """One contender for the lease. `leading` is the only question that others ask.

    Args:
        kube: The API.
        config: Which lease.
        identity: Our name, unique among contenders (the pod's name).
        monotonic, wall, sleep: Time.
    """

    def __init__(
        self,
        kube: Kube,
        config: LeaseConfig,
        identity: str,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._kube = kube
        self._config = config
        self._identity = identity
        self._monotonic = monotonic
        self._wall = wall
        self._sleep = sleep
        self._held_until = float("-inf")
        self._seen: tuple[str, float] = ("", float("-inf"))
        self.holder = ""
        self.fault = "the lease was not asked for yet"

    @property
    def leading(self) -> bool:
        """Whether we may act now."""
        return self._monotonic() < self._held_until

    @property
    def words(self) -> str:
        """Who leads, or why nobody is known to."""
        if self.leading:
            return f"this remediator ({self._identity}) holds the lease {self._config.name}"
        if self.fault:
            return f"no lease, no action: {self.fault}"
        return f"{self.holder or 'another remediator'} holds the lease {self._config.name} and acts"

    async def run(self) -> None:
        """Contend for ever."""
        while True:
            await self.contend()
            await self._sleep(self._config.duration / 6)

    async def close(self) -> None:
        """Release the connections; the lease runs out by itself."""
        self._held_until = float("-inf")
        await self._kube.close()

    async def contend(self) -> None:
        """Take the lease, renew it, or see who has it."""
        asked = self._monotonic()
        try:
            took = await self._contend(asked)
        except KubeError as error:
            self.fault = str(error)
            return
        was = self.leading
        if took:
            # From before the request: the API may have written the time of it, never a later one.
            self._held_until = asked + self._config.duration * 2 / 3
            self.fault = ""
        else:
            self._held_until = float("-inf")
        if self.leading != was:
            log.info("%s", self.words)

    async def _contend(self, now: float) -> bool:
        path = (
            f"/apis/coordination.k8s.io/v1/namespaces/{quote(self._config.namespace or self._kube.access.namespace)}/leases"
        )
        found = await self._kube.call("GET", f"{path}/{quote(self._config.name)}")
        if found.status == 404:
            made = await self._kube.call("POST", path, body=self._lease({"name": self._config.name}, {}, 0))
            return self._answered(made.status, made.ok, made.words)
        if not found.ok or not isinstance(found.body, dict):
            return self._answered(found.status, False, found.words)
        spec = found.body.get("spec") or {}
        self.holder = str(spec.get("holderIdentity") or "")
        stamp = f"{self.holder} {spec.get('renewTime')} {spec.get('leaseTransitions')}"
        if stamp != self._seen[0]:
            self._seen = (stamp, now)
        mine = self.holder == self._identity
        expired = now - self._seen[1] > float(spec.get("leaseDurationSeconds") or self._config.duration)
        if not mine and self.holder and not expired:
            self.fault = ""
            return False
        transitions = int(spec.get("leaseTransitions") or 0) + (0 if mine else 1)
        body = self._lease(found.body["metadata"], spec, transitions)
        # The resourceVersion in metadata makes the write fail if anybody else wrote since.
        written = await self._kube.call("PUT", f"{path}/{quote(self._config.name)}", body=body)
        return self._answered(written.status, written.ok, written.words)

    def _answered(self, status: int, ok: bool, words: str) -> bool:
        if ok:
            self.holder = self._identity
            return True
        self.fault = "" if status == 409 else f"the lease could not be had: {words}"
        return False

    def _lease(self, metadata: dict[str, Any], spec: dict[str, Any], transitions: int) -> dict[str, Any]:
        now = datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        acquired = spec.get("acquireTime") if spec.get("holderIdentity") == self._identity else now
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": round(self._config.duration),
                "acquireTime": acquired or now,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }
