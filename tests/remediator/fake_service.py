"""A `Service` whose answers a test sets: the web server's other side, not a stand-in for the core in its own tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from llm_remediator.service import (
    Counters,
    DecisionView,
    Delivery,
    Explanation,
    GateView,
    NotPossibleError,
    Overview,
    StoreError,
    TargetView,
    UnknownTargetError,
)

NOW = 1_796_000_000.0

OVERVIEW = Overview(
    mode="act",
    configured_mode="act",
    mode_reason="",
    version="1.2.3",
    started_at=NOW - 3600,
    paused_until=None,
    pause_reason="",
    breaker_open=False,
    breaker_reason="",
    journal_writable=True,
    last_reconcile=NOW - 5,
    exporter_up=True,
    docker_up={"local": True, "gpu-2": False},
    alertmanager_up={"http://am:9093": True},
)


def target(name: str = "a", **changes: Any) -> TargetView:
    view = TargetView(
        name=name,
        phase="idle",
        state="busy",
        sentence="busy: 12 running, 40 waiting, 126 tokens/s over 10s; no request sent",
        alert="none",
        container="compose service p/vllm: p-vllm-1 (0123456789ab), running",
        host="local",
        next_action="none: the exporter says busy",
        next_gate="state",
        next_possible_at=None,
        in_progress=False,
        latched=False,
        latch_reason="",
        paused_until=None,
        pause_reason="",
        budget_remaining=3,
        budget_total=3,
        cooldown_until=None,
        last_restart=None,
        foreign_owner="",
        wrong_container=False,
    )
    return replace(view, **changes)


def decision(**changes: Any) -> DecisionView:
    view = DecisionView(
        id=7,
        at=NOW - 60,
        target="a",
        decision="skip",
        reason="not_confirmed",
        text="it progresses",
        mode="act",
        gates=(GateView("mode", True, "act"), GateView("proof", False, "it progresses"), GateView("silence", None, "")),
        evidence={"held": 3, "bad": float("nan"), "count": 1, "kind": "alert", "last_at": NOW},
    )
    return replace(view, **changes)


class FakeService:
    def __init__(self) -> None:
        self.view = OVERVIEW
        self.views: list[TargetView] = [target()]
        self.stored: list[DecisionView] = [decision()]
        self.deliveries: list[Delivery] = []
        self.calls: list[tuple[Any, ...]] = []
        self.broken = ""
        self.health: tuple[bool, str] = (True, "ok")
        self.counted = Counters(
            decisions={("a", "skip", "not_confirmed"): 4},
            actions={("a", "verified"): 1},
            foreign_starts={"a": 2},
            downtimes={"a": (20.0, 700.0)},
        )

    async def accept(self, delivery: Delivery) -> None:
        if self.broken:
            raise StoreError(self.broken)
        self.deliveries.append(delivery)

    def overview(self) -> Overview:
        return self.view

    def targets(self) -> Sequence[TargetView]:
        return self.views

    def counters(self) -> Counters:
        return self.counted

    async def decisions(
        self, *, target: str | None = None, since: float | None = None, limit: int = 100
    ) -> Sequence[DecisionView]:
        self.calls.append(("decisions", target, since, limit))
        return self.stored[:limit]

    async def explain(self, target: str) -> Explanation:
        self._known(target)
        return Explanation(target, NOW, "skip", "state", "the exporter says busy", decision().gates, {"held": 3})

    async def drill(self, target: str) -> Explanation:
        self.calls.append(("drill", target))
        return await self.explain(target)

    async def pause(self, target: str | None, *, seconds: float, reason: str, by: str) -> float:
        if target is not None:
            self._known(target)
        self.calls.append(("pause", target, seconds, reason, by))
        return NOW + seconds

    async def resume(self, target: str | None, *, by: str) -> None:
        self.calls.append(("resume", target, by))

    async def rearm(self, target: str, *, by: str) -> None:
        self._known(target)
        if not next(v for v in self.views if v.name == target).latched:
            raise NotPossibleError(f"{target} is not latched")
        self.calls.append(("rearm", target, by))

    async def approve(self, target: str, *, request: int | None, by: str) -> float:
        self._known(target)
        if not next(v for v in self.views if v.name == target).awaiting_approval:
            raise NotPossibleError("nothing awaits approval")
        self.calls.append(("approve", target, request, by))
        return NOW + 900

    def healthy(self) -> tuple[bool, str]:
        return self.health

    def ready(self) -> tuple[bool, str]:
        return self.health

    def _known(self, name: str) -> None:
        if all(v.name != name for v in self.views):
            raise UnknownTargetError(name)
