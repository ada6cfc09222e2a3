"""The command line: what the simulated server is like, passed on to its engine processes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """One server. Rates are tokens per second: of the engine for a prefill, of each request for a decode."""

    host: str = "0.0.0.0"
    port: int = 8000
    model: str = "demo/Qwen3-Coder-30B-A3B-Instruct-FP8"
    api_key: str | None = None
    data_parallel_size: int = 1
    slots: int = 12
    chunk: int = 2048
    kv_blocks: int = 8192
    block_size: int = 16
    max_model_len: int = 40960
    load_seconds: float = 3.0
    prefill_rate: float = 8000.0
    decode_rate: float = 10.5
    stale_gauges: bool = False
    keep_alive_on_engine_death: bool = False
    pids_file: Path | None = None


def parse(arguments: Sequence[str] | None = None) -> Settings:
    """Read the command line; exits with a message on what vLLM would refuse too."""
    parser = _parser()
    found = parser.parse_args(arguments)
    settings = Settings(**vars(found))
    if (settings.kv_blocks - 1) * settings.block_size < settings.max_model_len:
        parser.error(
            f"--kv-blocks {settings.kv_blocks} of {settings.block_size} tokens cannot hold one request of "
            f"--max-model-len {settings.max_model_len}: raise the first or lower the second"
        )
    return settings


def _parser() -> argparse.ArgumentParser:
    default = Settings()
    parser = argparse.ArgumentParser(
        prog="python -m llm_sim",
        description="A simulated vLLM: an API process and one engine process per data-parallel rank.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--host", default=default.host)
    parser.add_argument("--port", type=int, default=default.port)
    parser.add_argument("--model", default=default.model, help="name served at /v1/models and in model_name")
    parser.add_argument("--api-key", default=None, help="guards /v1 only, as in vLLM")
    parser.add_argument("--data-parallel-size", type=_at_least(1), default=default.data_parallel_size)
    parser.add_argument("--slots", type=_at_least(1), default=default.slots, help="requests that run at once")
    parser.add_argument("--chunk", type=_at_least(1), default=default.chunk, help="tokens of one step at most")
    parser.add_argument("--kv-blocks", type=_at_least(2), default=default.kv_blocks)
    parser.add_argument("--block-size", type=_at_least(1), default=default.block_size, help="tokens of a KV block")
    parser.add_argument("--max-model-len", type=_at_least(2), default=default.max_model_len)
    parser.add_argument(
        "--load-seconds",
        type=_not_negative,
        default=default.load_seconds,
        help="the port is refused that long",
    )
    parser.add_argument(
        "--prefill-tokens-per-second",
        dest="prefill_rate",
        type=_positive,
        default=default.prefill_rate,
        help="of the whole engine",
    )
    parser.add_argument(
        "--decode-tokens-per-second",
        dest="decode_rate",
        type=_positive,
        default=default.decode_rate,
        help="of each running request, so also steps per second",
    )
    parser.add_argument(
        "--stale-gauges",
        action="store_true",
        help="gauges are sent only with outputs, as vLLM 0.9.1 to 0.10.1.1 did: an abort leaves them above 0",
    )
    parser.add_argument(
        "--keep-alive-on-engine-death",
        action="store_true",
        help="do not exit when an engine process died (VLLM_KEEP_ALIVE_ON_ENGINE_DEATH)",
    )
    parser.add_argument("--pids-file", type=Path, default=None, help="JSON with the pids of all processes")
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _not_negative(text: str) -> float:
    value = float(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def _at_least(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is below {least}")
        return value

    read.__name__ = "whole number"  # argparse names it where the text is none
    return read
