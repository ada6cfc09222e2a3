"""vLLM plugin (`vllm.stat_logger_plugins`): `llm_engine_steps_total{lane}`, one a scheduler step, prefill chunks included.

vLLM's own `vllm:iteration_tokens_total` does not count the chunks of a long prompt. Off unless `LLM_HEARTBEAT_VLLM_STEPS=1`.
The interface is declared unstable there, so nothing is assumed but the base class: every argument is looked for by name,
and at the first error the counter logs once and stands aside.
"""

import sys
from typing import TYPE_CHECKING, Any

from llm_heartbeat.faults import Faults
from llm_heartbeat.settings import read

_settings, _ = read()

if not _settings.vllm_steps and {"--disable-log-stats", "--disable_log_stats"} & set(sys.argv):
    # For vLLM the mere presence of a stat logger turns statistics on again. An import error keeps us out.
    raise ImportError("llm_heartbeat: LLM_HEARTBEAT_VLLM_STEPS is not set, and statistics are off: not loaded")

if TYPE_CHECKING:
    Base: Any = object
else:
    from vllm.v1.metrics.loggers import StatLoggerBase as Base


class StepCounter(Base):  # type: ignore[misc]
    """One per engine, made by vLLM in the API server's process, where `record` runs in the event loop."""

    def __init__(self, vllm_config: object = None, engine_index: int = 0, *more: object, **others: object) -> None:
        self._lane = engine_index
        self._faults = Faults()
        with self._faults.passed_by("vllm_base"):  # a later base class may rely on it
            super().__init__(vllm_config, engine_index, *more, **others)
        self._children: dict[int, Any] = {}
        self._off = not _settings.vllm_steps
        if not self._off:
            with self._faults.passed_by("vllm_steps"):
                self._children[engine_index] = _counter(self._faults).labels(str(engine_index))

    def record(self, scheduler_stats: object = None, iteration_stats: object = None, *_: object, **others: object) -> None:
        """Count a step where statistics of the scheduler came along: they go to one API server only, once a step."""
        if self._off or scheduler_stats is None:
            return
        try:
            lane = others.get("engine_idx", self._lane)
            child = self._children.get(lane)  # type: ignore[call-overload]
            if child is None:
                child = self._children[int(lane)] = _counter(self._faults).labels(str(lane))  # type: ignore[call-overload]
            child.inc()
        except Exception as error:  # noqa: BLE001 - runs in vLLM's output loop, which must not end because of it
            self._off = True
            self._faults.note("vllm_steps", error)

    def log_engine_initialized(self) -> None:
        """Nothing to say."""

    def log(self) -> None:
        """Nothing to say."""


# A method that a later vLLM declares abstract must not keep the server from starting.
StepCounter.__abstractmethods__ = frozenset()


def _counter(faults: Faults) -> Any:
    from prometheus_client import REGISTRY

    from llm_heartbeat.metrics import family

    return family("llm_engine_steps_total", REGISTRY, faults)
