"""What the API process and an engine process tell each other: JSON lines on one socket pair."""

from __future__ import annotations

import json
from dataclasses import dataclass

from llm_sim.scheduler import Output, Stats

READY = "ready"


@dataclass(frozen=True)
class Add:
    """A new request for the engine."""

    request_id: str
    prompt_tokens: int
    max_tokens: int
    queued_at: float


@dataclass(frozen=True)
class Abort:
    """Requests whose clients left."""

    request_ids: tuple[str, ...]


@dataclass(frozen=True)
class StepResult:
    """What one step yields: its outputs, and the gauges unless the engine keeps them back."""

    stats: Stats | None
    outputs: tuple[Output, ...]


def encode_command(command: Add | Abort) -> bytes:
    """One line for the engine."""
    if isinstance(command, Abort):
        return _line({"abort": command.request_ids})
    return _line({"add": [command.request_id, command.prompt_tokens, command.max_tokens, command.queued_at]})


def decode_command(line: bytes) -> Add | Abort:
    """The engine's side of :func:`encode_command`."""
    fields = json.loads(line)
    if "abort" in fields:
        return Abort(tuple(fields["abort"]))
    request_id, prompt_tokens, max_tokens, queued_at = fields["add"]
    return Add(request_id, prompt_tokens, max_tokens, queued_at)


def encode_ready() -> bytes:
    """The line that says that the model is loaded."""
    return _line(READY)


def encode_result(result: StepResult) -> bytes:
    """One line for the API process."""
    stats = result.stats
    return _line(
        {
            "stats": stats and [stats.running, stats.waiting, stats.kv_usage, stats.prefix_queries, stats.preemptions],
            "outputs": [[o.request_id, o.finish_reason, o.queued_at, o.scheduled_at] for o in result.outputs],
        }
    )


def decode_event(line: bytes) -> StepResult | None:
    """The API's side: a step, or None for the line that says that the engine is ready."""
    fields = json.loads(line)
    if fields == READY:
        return None
    stats = fields["stats"]
    return StepResult(stats and Stats(*stats), tuple(Output(*output) for output in fields["outputs"]))


def _line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
