"""The metrics page of a simulated server: the lines that the exporter's vLLM adapter reads, in vLLM's own words."""

from __future__ import annotations

from benchmarks.week.world import World

UNIX_AT_START = 1_796_000_000.0
"""Wall clock at second 0; only differences matter."""


def render(world: World) -> str:
    """What a scrape shows now."""
    engine, server = world.engine, world.server
    gauges = engine.gauges
    label = 'engine="0",model_name="m"'
    usage = f"vllm:kv_cache_usage_perc{{{label}}} {gauges.kv}\n"
    if server.stale_gauges:  # 0.9.2 to 0.10.2 have both names
        usage += f"vllm:gpu_cache_usage_perc{{{label}}} {gauges.kv}\n"
    awake = 0 if world.asleep else 1
    return (
        f"process_start_time_seconds {UNIX_AT_START + world.started}\n"
        f"vllm:num_requests_running{{{label}}} {gauges.running}\n"
        f"vllm:num_requests_waiting{{{label}}} {gauges.waiting}\n"
        f'vllm:num_requests_waiting_by_reason{{{label},reason="deferred"}} 0\n'
        f'vllm:engine_sleep_state{{{label},sleep_state="awake"}} {awake}\n'
        f'vllm:engine_sleep_state{{{label},sleep_state="weights_offloaded"}} {1 - awake}\n'
        f"{usage}"
        f"vllm:num_preemptions_total{{{label}}} 0\n"
        f"vllm:prompt_tokens_total{{{label}}} {engine.prompt_tokens}\n"
        f"vllm:generation_tokens_total{{{label}}} {engine.generation_tokens}\n"
        f'vllm:request_success_total{{{label},finished_reason="length"}} {engine.finished}\n'
        f"vllm:iteration_tokens_total_count{{{label}}} {engine.steps}\n"
    )
