"""Our own: the exporter's judge looks every 5 s with its defaults, the remediator's gates decide.

The same `llm_exporter.judge.judge` and `llm_remediator.policy.decide` run here as in the products; this module only does
what their shells do: it makes looks, sends the canaries that the judge asks for, and plays Prometheus and Docker.
"""

from __future__ import annotations

from benchmarks.week.engine import Request
from benchmarks.week.page import UNIX_AT_START, evidence, facts
from benchmarks.week.rules.gates import Gates
from benchmarks.week.world import World
from llm_exporter.judge import CanaryOutcome, CanaryRequest, History, Observation, Settings, State, Verdict, judge

SETTINGS = Settings()
TIMEOUT = 4.0
PROMETHEUS_EVERY = 15.0
"""Scrape and evaluation of the shipped Prometheus configuration; LLMEngineStuck has ``for: 0s``."""
PROOF_PAUSE = 5.0
_CANARY_LOOK = 1.0
SEEN_FOR = 60.0
"""Every shipped alert asks for a state in the last minute (``max_over_time(…[1m])``), then waits its ``for``."""
TOLD_AFTER = {
    State.STUCK: 600.0 + 10.0,  # LLMEngineStuckUnattended
    State.STARVED: 60.0 + 60.0,  # LLMEngineStarved
    State.FAILED: 120.0 + 10.0,  # LLMEngineFailed
    State.UNREACHABLE: 300.0 + 60.0,  # LLMTargetUnreachable
    State.UNKNOWN: 600.0 + 60.0,  # LLMTargetUnknown
}
"""Alerts that reach a person: how long the state holds (rules/alerts.yml), and the ``group_wait`` of its severity's route
(rules/alertmanager.yml). `down` is not counted: a closed port is never a hang here."""


class Stuckproof:
    """Exporter, rules and remediator for one server."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._history = History()
        self._gates = Gates(world)
        self.verdict: Verdict | None = None
        self._flight: tuple[CanaryRequest, Request | None, float] | None = None
        self._outcome: CanaryOutcome | None = None
        self._state_since = 0.0
        self._state_at: dict[State, float] = {}
        self._active_since: dict[State, float] = {}
        self._paged: set[State] = set()
        self._proving = False
        world.at(SETTINGS.interval, self._every_look)
        world.at(PROMETHEUS_EVERY, self._every_scrape)

    def _every_look(self) -> None:
        self._world.at(self._world.now + SETTINGS.interval, self._every_look)
        self._look()

    def _look(self) -> None:
        world = self._world
        world.engine.advance(world.now)
        outcome, self._outcome = self._outcome, None
        before = self.verdict
        observation = self._observe(outcome)
        self._history, verdict = judge(self._history, observation, world.now, SETTINGS)
        self.verdict = verdict
        if before is None or before.state is not verdict.state:
            self._state_since = world.now
        self._gates.saw(observation, verdict, self._state_since)
        if verdict.wants is not None and self._flight is None:
            self._send(verdict.wants)

    def _observe(self, outcome: CanaryOutcome | None) -> Observation:
        world, unix, known = self._world, UNIX_AT_START + self._world.now, facts(self._world.server)
        if world.refused:
            return Observation(unix, "refused", "connection refused", known, canary=outcome)
        if not world.answers_within(TIMEOUT):
            return Observation(unix, "timeout", f"no answer within {TIMEOUT:.0f} s", known, canary=outcome)
        flight = self._flight
        return Observation(
            unix,
            "answered",
            facts=known,
            lanes=(evidence(world),),
            incarnation=f"{UNIX_AT_START + world.started:.3f}",
            age=world.now - world.started,
            health=200,
            canary=outcome,
            own_canary=flight[0] if flight is not None else None,
        )

    def _evaluate_alerts(self, verdict: Verdict) -> None:
        """What Prometheus does every 15 s with the states that a person is told of."""
        now = self._world.now
        self._state_at[verdict.state] = now
        for state, hold in TOLD_AFTER.items():
            if now - self._state_at.get(state, -SEEN_FOR) >= SEEN_FOR:
                self._active_since.pop(state, None)
                self._paged.discard(state)
            elif now - self._active_since.setdefault(state, now) >= hold and state not in self._paged:
                self._paged.add(state)
                self._world.page(f"{state.value}; now {verdict.sentence}")

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
        if verdict is not None:
            self._evaluate_alerts(verdict)
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
