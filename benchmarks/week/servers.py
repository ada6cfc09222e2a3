"""The servers whose week is simulated, with where each number comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Server:
    """One server. Rates in tokens per second: prefill of the engine, decode of each request; times in seconds."""

    name: str
    version: str
    slots: int
    prefill_rate: float
    decode_rate: float
    load_seconds: tuple[float, float]
    stale_gauges: bool = False
    decode_share: float = 0.25
    """Part of the decode rate that is left while a prefill chunk shares the step (recordings/vllm-long-prefill)."""
    chunk: int = 2048
    block_tokens: int = 16
    kv_blocks: int = 62_500
    chat_per_hour: float = 120.0
    """Interactive requests at the busiest hour; a fifth of it at night."""
    batch_jobs: int = 0
    """Batch jobs in the week: 2 to 4 requests at a time, each for minutes, for hours (the story's load)."""
    saturations: int = 0
    """Agents or load tests that keep 60 requests open for half an hour to three hours."""
    long_prompts: int = 0
    """Prompts of 40,000 to 200,000 tokens."""
    mass_aborts: int = 0
    """All clients leave at once: a batch that is cancelled."""
    compiles: int = 0
    """Steps that compile for a new shape while work is held, 20 to 200 s."""
    first_compiles: int = 3
    """The same at the first step after idle, when the page still says 0/0."""
    sleeps: int = 0
    """Nights in which it is put to sleep (vLLM's sleep mode) for six hours."""
    redeployments: int = 2
    crashes: int = 1
    """The process exits and Docker's restart policy starts it again."""
    loop_stalls: int = 0
    """API process busy for 5 to 40 s under load: /health and /metrics wait (vLLM issue 38157 measured 30 to 40 s)."""


SERVERS: tuple[Server, ...] = (
    Server(
        name="workstation",
        version="0.32.0",
        slots=4,
        prefill_rate=500.0,
        decode_rate=20.0,
        load_seconds=(90.0, 150.0),
        chat_per_hour=20.0,
        batch_jobs=10,
        long_prompts=14,
        mass_aborts=4,
        compiles=6,
        sleeps=5,
    ),
    Server(
        name="shared",
        version="0.32.0",
        slots=12,
        prefill_rate=4000.0,
        decode_rate=10.5,
        load_seconds=(120.0, 300.0),
        chat_per_hour=150.0,
        batch_jobs=4,
        saturations=8,
        long_prompts=10,
        mass_aborts=4,
        compiles=6,
        redeployments=4,
        loop_stalls=16,
    ),
    Server(
        name="old",
        version="0.10.1",
        slots=8,
        prefill_rate=1500.0,
        decode_rate=15.0,
        load_seconds=(90.0, 180.0),
        stale_gauges=True,
        chat_per_hour=25.0,
        batch_jobs=6,
        saturations=2,
        long_prompts=8,
        mass_aborts=12,
        compiles=4,
        loop_stalls=4,
    ),
)
