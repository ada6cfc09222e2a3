"""Our own: the exporter's judge looks every 5 s with its defaults, the remediator's gates decide, nothing is simplified away.

The same `llm_exporter.pipeline.step` and `llm_remediator.policy.decide` run here as in the products; this module only does
what their shells do: it makes looks, sends the canaries that the judge asks for, and plays Prometheus and Docker.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.week.engine import Request
from benchmarks.week.page import UNIX_AT_START, render
from benchmarks.week.rules.gates import Gates
from benchmarks.week.world import World
from llm_exporter.engines import Known, Look, Page
from llm_exporter.judge import CanaryOutcome, CanaryRequest, Settings, State, Verdict
from llm_exporter.pipeline import Mind, Seen, step

SETTINGS = Settings()
TIMEOUT = 4.0
PROMETHEUS_EVERY = 15.0
"""Scrape and evaluation of the shipped Prometheus configuration; LLMEngineStuck has ``for: 0s``."""
PROOF_PAUSE = 5.0
_CANARY_LOOK = 1.0
_PAGED_AFTER = {
    State.STUCK: 600.0,  # LLMEngineStuckUnattended
    State.STARVED: 60.0,  # LLMEngineStarved
    State.FAILED: 120.0,  # LLMEngineFailed
    State.UNREACHABLE: 300.0,  # LLMTargetUnreachable
    State.UNKNOWN: 600.0,  # LLMTargetUnknown
}
"""Alerts that reach a person (rules/alerts.yml). `down` is not counted: a closed port is never a hang here."""


class Stuckproof:
    """Exporter, rules and remediator for one server."""

    def __init__(self, world: World) -> None:
        self._world = world
        known = Known(version=world.server.version, model="m")
        self._mind = replace(Mind.of("vllm"), known=known)
        self._gates = Gates(world)
        self._seen: Seen | None = None
        self._flight: tuple[CanaryRequest, Request | None, float] | None = None
        self._outcome: CanaryOutcome | None = None
        self._state_since = 0.0
        self._paged = False
        self._proving = False
        world.at(SETTINGS.interval, self._every_look)
        world.at(PROMETHEUS_EVERY, self._every_scrape)

    @property
    def verdict(self) -> Verdict | None:
        """The last one."""
        return self._seen.verdict if self._seen is not None else None

    def _every_look(self) -> None:
        self._world.at(self._world.now + SETTINGS.interval, self._every_look)
        self._look()

    def _look(self) -> None:
        world = self._world
        world.engine.advance(world.now)
        outcome, self._outcome = self._outcome, None
        flight = self._flight
        before = self.verdict
        self._mind, self._seen = step(
            self._mind,
            Look(world.now, UNIX_AT_START + world.now, *self._fetch()),
            SETTINGS,
            canary=outcome,
            own_canary=flight is not None,
            own_canary_lane=flight[0].lane if flight is not None else None,
        )
        verdict = self._seen.verdict
        if before is None or before.state is not verdict.state:
            self._state_since, self._paged = world.now, False
        self._gates.saw(self._seen, self._state_since)
        self._tell_a_person(verdict)
        if verdict.wants is not None and self._flight is None:
            self._send(verdict.wants)

    def _fetch(self) -> tuple[Page, Page]:
        world = self._world
        if world.refused:
            refused = Page(kind="refused", error="connection refused")
            return refused, refused
        if not world.answers_within(TIMEOUT):
            silent = Page(kind="timeout", error="no answer", seconds=TIMEOUT)
            return silent, silent
        return Page(status=200, body=render(world), seconds=0.005), Page(status=200, seconds=0.001)

    def _tell_a_person(self, verdict: Verdict) -> None:
        limit = _PAGED_AFTER.get(verdict.state)
        if limit is not None and not self._paged and self._world.now - self._state_since >= limit:
            self._paged = True
            self._world.page(verdict.sentence)

    def _send(self, asked: CanaryRequest) -> None:
        request = self._world.submit(1, 1)
        self._flight = asked, request, self._world.now
        self._follow()

    def _follow(self) -> None:
        """Wait for the canary as the exporter does: its answer, a reset, or silence at the timeout."""
        if self._flight is None:
            return
        asked, request, began = self._flight
        world = self._world
        waited = world.now - began
        answered = request is not None and request.ended == "finished" and world.answers_within(TIMEOUT)
        if request is None:
            outcome = CanaryOutcome(asked.kind, "refused", began, waited, lane=asked.lane)
        elif answered:
            outcome = CanaryOutcome(asked.kind, "answered", began, waited, 200, asked.lane)
        elif request.ended == "lost":
            outcome = CanaryOutcome(asked.kind, "reset", began, waited, lane=asked.lane)
        elif waited >= SETTINGS.canary_timeout:
            world.withdraw(request)
            outcome = CanaryOutcome(asked.kind, "silent", began, waited, lane=asked.lane)
        else:
            world.at(world.now + _CANARY_LOOK, self._follow)
            return
        self._flight, self._outcome = None, outcome
        if waited > 0:
            self._look()

    def _every_scrape(self) -> None:
        world = self._world
        world.at(world.now + PROMETHEUS_EVERY, self._every_scrape)
        self._gates.verify()
        verdict = self.verdict
        if verdict is not None and verdict.state is State.STUCK and not self._proving:
            self._proving = True
            self._look()
            world.at(world.now + PROOF_PAUSE, self._prove)

    def _prove(self) -> None:
        self._proving = False
        self._look()
        verdict = self.verdict
        if verdict is not None and self._gates.allow(verdict):
            self._world.restart(verdict.sentence)
