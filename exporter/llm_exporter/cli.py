"""The command ``llm-exporter``: serve, check, record, replay, watch."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from llm_common import logs
from llm_common.config import parse_duration
from llm_common.errors import ConfigError
from llm_common.web import WebConfig, parse_listen
from llm_exporter import __version__, check, config_check
from llm_exporter.config import Config, from_urls, load
from llm_exporter.engines import engines
from llm_exporter.replay import RecordingError, lines_of, replay, report
from llm_exporter.service import Options, serve
from llm_exporter.shard import Shard
from llm_exporter.target_config import Patience, Target
from llm_exporter.terminal import Table

USAGE, FAILED = 2, 1


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


def _kinds() -> tuple[str, ...]:
    return tuple(engine.kind for engine in engines())


def _common(parser: argparse.ArgumentParser, level: str) -> None:
    parser.add_argument("--log.level", dest="log_level", choices=("debug", "info", "warning", "error"), default=level)
    parser.add_argument("--log.format", dest="log_format", choices=("logfmt", "json"), default="logfmt")


def _access(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", choices=("auto", *_kinds()), default="auto", help="the engine, if it is not detected")
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
    add("--web.external-url", dest="external_url", default="", metavar="URL", help="prefix of links behind a reverse proxy")
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    commands: dict[str, Callable[[list[str]], int]] = {
        "check": _check, "record": _record, "replay": _replay, "watch": _watch,
    }  # fmt: skip
    try:
        if arguments and arguments[0] in commands:
            return commands[arguments[0]](arguments[1:])
        return _serve(arguments)
    except ConfigError as error:
        for problem in error.problems:
            print(f"llm-exporter: {problem}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has left (`| head`); what Python would flush at exit has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _serve(arguments: list[str]) -> int:
    args = serve_parser().parse_args(arguments)
    logs.setup(args.log_level, args.log_format)
    if bool(args.urls) == bool(args.config_file):
        raise ConfigError("give either URLs of servers or --config.file")
    if args.urls and args.urls[0].isalpha() and args.urls[0] != "localhost":
        # A mistyped command must not become a server of that name on port 80, watched for ever.
        word = args.urls[0]
        raise ConfigError(f"{word!r} is no command (check, record, replay, watch); a server of that name: http://{word}")
    read = partial(load, args.config_file, _kinds()) if args.config_file else partial(from_urls, args.urls)
    listen = args.listen or [":10140"]
    for address in listen:
        parse_listen(address)
    if args.config_check:
        return _config_check(read, args.web_config)
    _raise_file_limit()
    options = Options(
        listen, args.web_config, args.external_url, args.lifecycle, shard=args.shard, sends_canaries=not args.no_canary
    )
    asyncio.run(serve(read, options))
    return 0


def _config_check(read: Callable[[], Config], web_config: str | None) -> int:
    problems: list[str] = []
    config = None
    for what in (read, partial(WebConfig.load, web_config) if web_config else None):
        try:
            result = what() if what is not None else None
            config = result if isinstance(result, Config) else config
        except ConfigError as error:
            problems += error.problems
    if problems or config is None:
        raise ConfigError(problems)
    for line in asyncio.run(config_check.try_targets(config)):
        print(line)
    print(f"the configuration is valid: {len(config.targets)} targets")
    return 0


def _raise_file_limit() -> None:
    """A connection per target stays open; the usual soft limit of 1024 is too small for a fleet."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536) if hard > 0 else 65536, hard))


def _target(args: argparse.Namespace, url: str) -> Target:
    """The one target of a command: the keys of its entry in the configuration, else of the configuration's defaults."""
    target = from_urls([url]).targets[0]
    patience = Patience()
    if args.config_file:
        config = load(args.config_file, _kinds(), need_targets=False)
        same = next((known for known in config.targets if known.url == target.url), None)
        target, patience = same or target, same.patience if same is not None else config.defaults
    if args.bearer_token_file:
        patience = replace(patience, bearer_token_file=args.bearer_token_file)
    engine = args.engine if args.engine != "auto" else target.engine
    return replace(target, engine=engine, patience=patience)


def _check(arguments: list[str]) -> int:
    args = check_parser().parse_args(arguments)
    logs.setup(args.log_level, args.log_format)
    checked = asyncio.run(check.check(_target(args, args.url), args.seconds, canary=args.canary))
    print(json.dumps(check.as_json(checked)) if args.json else check.report(checked))
    return check.EXIT[checked.snapshot.verdict.state]


def _record(arguments: list[str]) -> int:
    args = record_parser().parse_args(arguments)
    logs.setup(args.log_level, args.log_format)
    target = _target(args, args.url)
    if args.interval is not None:
        target = replace(target, patience=replace(target.patience, interval=max(0.1, args.interval), timeout=None))
    try:
        looks = asyncio.run(check.record(target, args.seconds, args.output, canary=args.canary))
    except OSError as error:
        raise ConfigError(f"{args.output}: cannot be written: {error.strerror or error}") from error
    print(f"{looks} looks in {args.output}", file=sys.stderr)
    return 0


def _replay(arguments: list[str]) -> int:
    args = replay_parser().parse_args(arguments)
    logs.setup(args.log_level, args.log_format)
    patience, engine, name = _replayed(args)
    looks = 0
    try:
        for seen in replay(lines_of(args.file), patience.settings, engine):
            for line in report(seen, name):
                print(json.dumps(line, ensure_ascii=False))
            looks += 1
    except OSError as error:
        raise ConfigError(f"{args.file}: cannot be read: {error.strerror or error}") from error
    except RecordingError as error:
        raise ConfigError(str(error)) from error
    if not looks:
        raise ConfigError(f"{args.file}: holds no look at a server; `llm-exporter record` writes such files")
    return 0


def _replayed(args: argparse.Namespace) -> tuple[Patience, str, str]:
    """Patience, engine and name for a replay."""
    stem = args.file.name.removesuffix(".gz").removesuffix(".jsonl")
    if not args.config_file:
        return Patience(), "auto", args.target or stem
    config = load(args.config_file, _kinds(), need_targets=False)
    if args.target is None:
        return config.defaults, "auto", stem
    target = next((known for known in config.targets if known.name == args.target), None)
    if target is None:
        if not config.targets:
            return config.defaults, "auto", args.target
        names = ", ".join(known.name for known in config.targets)
        raise ConfigError(f"--target {args.target}: the configuration has no such target; it has: {names}")
    return target.patience, target.engine, target.name


def _watch(arguments: list[str]) -> int:
    args = watch_parser().parse_args(arguments)
    logs.setup(args.log_level, args.log_format)
    targets = [_target(args, url) for url in args.urls]
    table = Table()
    try:
        asyncio.run(check.watch(targets, table.show))
    finally:
        table.close()
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
