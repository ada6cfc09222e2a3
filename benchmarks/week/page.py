"""What the exporter would read from a simulated server: as a metrics page, and as the evidence made from it.

The page costs a parser's time per look; a week has 120,960 looks. So the week is judged from `evidence`, and a test holds
that the exporter's own adapter makes the very same evidence from `render`.
"""

from __future__ import annotations

from functools import cache

from benchmarks.week.servers import Server
from benchmarks.week.world import World
from llm_exporter.engines import Known, by_kind
from llm_exporter.exposition import read
from llm_exporter.judge import Facts, LaneEvidence

UNIX_AT_START = 1_796_000_000.0
"""Wall clock at second 0; only differences matter."""
_LABELS = 'engine="0",model_name="m"'


def render(world: World) -> str:
    """The lines of a scrape that the vLLM adapter reads, in vLLM's own words."""
    engine, server = world.engine, world.server
    gauges = engine.gauges
    usage = f"vllm:kv_cache_usage_perc{{{_LABELS}}} {gauges.kv}\n"
    if server.stale_gauges:  # 0.9.2 to 0.10.2 have both names
        usage += f"vllm:gpu_cache_usage_perc{{{_LABELS}}} {gauges.kv}\n"
    awake = 0 if world.asleep else 1
    return (
        f"process_start_time_seconds {UNIX_AT_START + world.started}\n"
        f"vllm:num_requests_running{{{_LABELS}}} {gauges.running}\n"
        f"vllm:num_requests_waiting{{{_LABELS}}} {gauges.waiting}\n"
        f'vllm:num_requests_waiting_by_reason{{{_LABELS},reason="deferred"}} 0\n'
        f'vllm:engine_sleep_state{{{_LABELS},sleep_state="awake"}} {awake}\n'
        f'vllm:engine_sleep_state{{{_LABELS},sleep_state="weights_offloaded"}} {1 - awake}\n'
        f"{usage}"
        f"vllm:num_preemptions_total{{{_LABELS}}} 0\n"
        f"vllm:prompt_tokens_total{{{_LABELS}}} {engine.prompt_tokens}\n"
        f"vllm:generation_tokens_total{{{_LABELS}}} {engine.generation_tokens}\n"
        f'vllm:request_success_total{{{_LABELS},finished_reason="length"}} {engine.finished}\n'
        f"vllm:iteration_tokens_total_count{{{_LABELS}}} {engine.steps}\n"
    )


def evidence(world: World) -> LaneEvidence:
    """What the vLLM adapter makes of `render`."""
    engine = world.engine
    gauges = engine.gauges
    steps, generated, prompted = float(engine.steps), float(engine.generation_tokens), float(engine.prompt_tokens)
    return LaneEvidence(
        lane="0",
        progress={
            "vllm:iteration_tokens_total_count": steps,
            "vllm:generation_tokens_total": generated,
            "vllm:prompt_tokens_total": prompted,
        },
        running=float(gauges.running),
        waiting=float(gauges.waiting),
        deferred=0.0,
        kv=gauges.kv,
        preemptions=0.0,
        prompt_tokens=prompted,
        generation_tokens=generated,
        finished=float(engine.finished),
        steps=steps,
        asleep="asleep (weights offloaded)" if world.asleep else None,
    )


@cache
def facts(server: Server) -> Facts:
    """What the adapter knows of this version from its page."""
    adapter = by_kind("vllm")
    if adapter is None:
        raise LookupError("the exporter has no vLLM adapter")
    names = ["num_requests_running", "kv_cache_usage_perc", *(["gpu_cache_usage_perc"] if server.stale_gauges else [])]
    page = "".join(f"vllm:{name}{{{_LABELS}}} 0\n" for name in names)
    return adapter.facts(read(page, adapter.series), Known(version=server.version))
