"""The command ``llm-exporter``: serve, check, record, replay, watch. What the options are stands in `arguments`."""

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
from typing import NoReturn

from llm_common import logs
from llm_common.errors import ConfigError
from llm_common.listen import parse_listen
from llm_common.web_config import WebConfig
from llm_exporter import check, config_check
from llm_exporter.arguments import check_parser, kinds, record_parser, replay_parser, serve_parser, watch_parser
from llm_exporter.config import Config, from_urls, load
from llm_exporter.engines.custom import Described
from llm_exporter.recording import RecordingError, lines_of
from llm_exporter.replay import replay, report
from llm_exporter.service import Options, serve
from llm_exporter.target_config import Target, TargetOptions
from llm_exporter.terminal import Table

USAGE = 2
INTERRUPTED = 130
BROKEN_PIPE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    commands: dict[str, Callable[[list[str]], int]] = {
        "check": _check, "record": _record, "replay": _replay, "watch": _watch,
    }  # fmt: skip
    try:
        command = commands.get(arguments[0]) if arguments else None
        status = _serve(arguments) if command is None else command(arguments[1:])
        sys.stdout.flush()
    except ConfigError as error:
        for problem in error.problems:
            print(f"llm-exporter: {problem}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has left (`| head`); what Python would flush at exit has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return status


def _serve(arguments: list[str]) -> int:
    args = serve_parser().parse_args(arguments)
    logs.setup(args.log_level, args.log_format)
    if bool(args.urls) == bool(args.config_file):
        raise ConfigError("give either URLs of servers or --config.file")
    if args.urls and args.urls[0].isalpha() and args.urls[0] != "localhost":
        # A mistyped command must not become a server of that name on port 80, watched for ever.
        word = args.urls[0]
        raise ConfigError(f"{word!r} is no command (check, record, replay, watch); a server of that name: http://{word}")
    read = partial(load, args.config_file, kinds()) if args.config_file else partial(from_urls, args.urls)
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
    config: Config | None = None
    try:
        config = read()
    except ConfigError as error:
        problems += error.problems
    try:
        if web_config is not None:
            WebConfig.load(web_config)
    except ConfigError as error:
        problems += error.problems
    if config is None or problems:
        raise ConfigError(problems)
    sources = asyncio.run(config_check.try_sources(config))
    for line in (*asyncio.run(config_check.try_targets(config)), *sources):
        print(line)
    more = f", {len(sources)} sources of targets" if sources else ""
    print(f"the configuration is valid: {len(config.targets)} targets{more}")
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
    options = TargetOptions()
    if args.config_file:
        config = load(args.config_file, kinds(), need_targets=False)
        same = next((known for known in config.targets if known.url == target.url), None)
        target, options = same or target, same.options if same is not None else config.defaults
    if args.bearer_token_file:
        options = replace(options, bearer_token_file=args.bearer_token_file)
    engine = args.engine if args.engine != "auto" else target.engine
    return replace(target, engine=engine, options=options)


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
        target = replace(target, options=replace(target.options, interval=max(0.1, args.interval), timeout=None))
    try:
        looks = asyncio.run(check.record(target, args.seconds, args.output, canary=args.canary))
    except OSError as error:
        raise ConfigError(f"{args.output}: cannot be written: {error.strerror or error}") from error
    print(f"{looks} looks in {args.output}", file=sys.stderr)
    return 0


def _replay(arguments: list[str]) -> int:
    args = replay_parser().parse_args(arguments)
    logs.setup(args.log_level, args.log_format)
    options, engine, name, described = _replayed(args)
    looks = 0
    try:
        for seen in replay(lines_of(args.file), options.settings, engine, described):
            for line in report(seen, name):
                print(json.dumps(line, ensure_ascii=False))
            looks += 1
    except BrokenPipeError:
        raise  # of our output, not of the recording
    except OSError as error:
        raise ConfigError(f"{args.file}: cannot be read: {error.strerror or error}") from error
    except RecordingError as error:
        raise ConfigError(str(error)) from error
    if not looks:
        raise ConfigError(f"{args.file}: holds no look at a server; `llm-exporter record` writes such files")
    return 0


def _replayed(args: argparse.Namespace) -> tuple[TargetOptions, str, str, Sequence[Described]]:
    """Options, engine, name, and the engines that the configuration describes, for a replay."""
    stem = args.file.name.removesuffix(".gz").removesuffix(".jsonl")
    if not args.config_file:
        return TargetOptions(), "auto", args.target or stem, ()
    config = load(args.config_file, kinds(), need_targets=False)
    if args.target is None:
        return config.defaults, "auto", stem, config.engines
    target = next((known for known in config.targets if known.name == args.target), None)
    if target is None:
        if not config.targets:
            return config.defaults, "auto", args.target, config.engines
        names = ", ".join(known.name for known in config.targets)
        raise ConfigError(f"--target {args.target}: the configuration has no such target; it has: {names}")
    return target.options, target.engine, target.name, config.engines


def _watch(arguments: list[str]) -> NoReturn:
    args = watch_parser().parse_args(arguments)
    logs.setup(args.log_level, args.log_format)
    targets = [_target(args, url) for url in args.urls]
    table = Table()
    try:
        asyncio.run(check.watch(targets, table.show))
    finally:
        table.close()


if __name__ == "__main__":
    sys.exit(main())
