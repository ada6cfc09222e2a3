"""The options of every command; what is said here is what ``--help`` and the reference say."""

from __future__ import annotations

import argparse
from pathlib import Path

from llm_common.durations import parse_duration
from llm_exporter import __version__
from llm_exporter.engines import engines
from llm_exporter.shard import Shard


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _shard(text: str) -> Shard:
    try:
        return Shard.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def kinds() -> tuple[str, ...]:
    """The names of the engines that are built in."""
    return tuple(engine.kind for engine in engines())


def _common(parser: argparse.ArgumentParser, level: str) -> None:
    parser.add_argument("--log.level", dest="log_level", choices=("debug", "info", "warning", "error"), default=level)
    parser.add_argument("--log.format", dest="log_format", choices=("logfmt", "json"), default="logfmt")


def _access(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", choices=("auto", *kinds()), default="auto", help="the engine, if it is not detected")
    parser.add_argument("--bearer-token-file", metavar="FILE", help="file with the token or API key of the server")
    parser.add_argument("--config.file", dest="config_file", metavar="FILE", help="take `defaults` from this exporter.yml")


def serve_parser() -> argparse.ArgumentParser:
    """The options of serving."""
    parser = argparse.ArgumentParser(
        prog="llm-exporter",
        description="Tells from their own metrics whether LLM inference servers are idle, busy or stuck.",
        epilog="Other commands: llm-exporter check|record|replay|watch --help",
    )
    add = parser.add_argument
    add("urls", nargs="*", metavar="URL", help="servers to watch, if there is no configuration file")
    add("--config.file", dest="config_file", metavar="FILE", help="exporter.yml")
    add("--config.check", dest="config_check", action="store_true",
        help="check the configuration, try the canary's path of every target, and exit")  # fmt: skip
    add("--web.listen-address", dest="listen", action="append", metavar="ADDRESS",
        help="address to serve on, repeatable (default :10140)")  # fmt: skip
    add(
        "--web.config.file",
        dest="web_config",
        metavar="FILE",
        help="TLS and credentials, as Prometheus' exporters read them",
    )
    add(
        "--web.external-url",
        dest="external_url",
        default="",
        metavar="URL",
        help="where people reach it; links in alerts begin so",
    )
    add("--web.enable-lifecycle", dest="lifecycle", action="store_true", help="allow POST /-/reload")
    add("--shard", type=_shard, default=Shard(), metavar="I/N", help="watch part I of N, from 0")
    add("--no-canary", dest="no_canary", action="store_true",
        help="never send a request of our own; for the second of two exporters over the same targets")  # fmt: skip
    add("--version", action="version", version=f"llm-exporter {__version__}")
    _common(parser, "info")
    return parser


def check_parser() -> argparse.ArgumentParser:
    """The options of ``check``."""
    parser = argparse.ArgumentParser(
        prog="llm-exporter check",
        description="Look at one server and say in what state it is. Exit status 0: busy, idle, sleeping, starting; "
        "1: stalled, stuck, starved, failed, down; 2: unreachable, unknown.",
    )
    parser.add_argument("url", metavar="URL")
    parser.add_argument("--for", dest="seconds", type=_duration, metavar="DURATION",
                        help="look for that long, so that a bound may pass; else at most `stalled` is said")  # fmt: skip
    parser.add_argument("--canary", action="store_true", help="allow one tiny request where it is the last question")
    parser.add_argument("--json", action="store_true", help="print JSON")
    _access(parser)
    _common(parser, "error")
    return parser


def record_parser() -> argparse.ArgumentParser:
    """The options of ``record``."""
    parser = argparse.ArgumentParser(prog="llm-exporter record", description="Write down what a server says for some time.")
    parser.add_argument("url", metavar="URL")
    parser.add_argument("--for", dest="seconds", type=_duration, default=60.0, metavar="DURATION", help="default 60s")
    parser.add_argument("-o", dest="output", required=True, type=Path, metavar="FILE", help="FILE.jsonl or FILE.jsonl.gz")
    parser.add_argument("--interval", type=_duration, metavar="DURATION", help="between two looks")
    parser.add_argument("--canary", action="store_true", help="send and record the canaries that the judge asks for")
    _access(parser)
    _common(parser, "error")
    return parser


def replay_parser() -> argparse.ArgumentParser:
    """The options of ``replay``."""
    parser = argparse.ArgumentParser(
        prog="llm-exporter replay", description="Judge a recording again; one JSON line per look and lane."
    )
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--config.file", dest="config_file", metavar="FILE", help="exporter.yml; its `defaults` apply")
    parser.add_argument("--target", metavar="NAME", help="judge with the keys of this target of the configuration")
    _common(parser, "error")
    return parser


def watch_parser() -> argparse.ArgumentParser:
    """The options of ``watch``."""
    parser = argparse.ArgumentParser(prog="llm-exporter watch", description="A live table of servers; sends no request.")
    parser.add_argument("urls", nargs="+", metavar="URL")
    _access(parser)
    _common(parser, "error")
    return parser
