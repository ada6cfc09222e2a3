"""`llm-remediator`: serves by default; subcommands look into the journal, ask a running one, or proxy the socket."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version

from llm_common import logs
from llm_common.config import ConfigError
from llm_common.terminal import printable_lines
from llm_remediator import config as configuration
from llm_remediator import inquiries
from llm_remediator.app import Serving, run
from llm_remediator.cli_options import (
    asking_options,
    config_option,
    count,
    duration,
    log_options,
    login,
    must_be_target,
    new_parser,
    place_of,
)
from llm_remediator.config import Config
from llm_remediator.http_client import origin_of
from llm_remediator.journal_store import JournalLockedError
from llm_remediator.service import StoreError
from llm_remediator.socket_proxy import SocketProxy
from llm_remediator.socket_proxy import run as run_proxy

COMMANDS = "status, journal, report, drill, pause, resume, rearm, approve, socket-proxy"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 refused or not possible, 2 wrong configuration or usage, 130 Ctrl-C, 141 nobody reads."""
    words = list(sys.argv[1:] if argv is None else argv)
    commands: dict[str, Callable[[list[str]], int]] = {
        "status": _status,
        "journal": _journal,
        "report": _report,
        "drill": _drill,
        "pause": _change,
        "resume": _change,
        "rearm": _change,
        "approve": _change,
        "socket-proxy": _socket_proxy,
    }
    try:
        if words and words[0] in commands:
            command = commands[words[0]]
            code = command(words if command is _change else words[1:])
        elif words and not words[0].startswith("-"):
            print(f"{words[0]!r} is no command; there are {COMMANDS}, and without one it serves", file=sys.stderr)
            return 2
        else:
            code = _serve(words)
        sys.stdout.flush()
    except ConfigError as exc:
        print(exc, file=sys.stderr)
        return 2
    except (JournalLockedError, StoreError, inquiries.AskError) as exc:
        print(printable_lines(str(exc)), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has left (`| head`); what Python would flush at exit has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code


def _serve(words: list[str]) -> int:
    parser = new_parser("llm-remediator", f"Restarts what is provably stuck. Subcommands: {COMMANDS}.")
    config_option(parser)
    parser.add_argument("--config.check", dest="check", action="store_true", help="only check the configuration")
    parser.add_argument(
        "--web.listen-address",
        dest="listen",
        action="append",
        metavar="HOST:PORT",
        help="may be repeated; default 127.0.0.1:10141",
    )
    parser.add_argument("--web.config.file", dest="web_config", metavar="FILE", help="TLS and credentials")
    parser.add_argument("--web.external-url", dest="external_url", metavar="URL", help="where people's browsers find it")
    log_options(parser)
    parser.add_argument("--version", action="version", version=f"llm-remediator {_version()}")
    args = parser.parse_args(words)
    config = configuration.load(args.config)
    serving = Serving(
        listen=tuple(args.listen or ("127.0.0.1:10141",)),
        web_config_file=args.web_config,
        external_url=args.external_url,
        shown_config=shown(config),
        version=_version(),
    )
    if args.check:
        configuration.check_listen(config, list(serving.listen), serving.web_config_file)
        print(f"{args.config}: mode {config.mode.value}, {len(config.targets)} targets, no problems")
        return 0
    logs.setup(args.log_level, args.log_format)
    asyncio.run(run(config, serving))
    return 0


def _status(words: list[str]) -> int:
    parser = new_parser("llm-remediator status", "What would be done to each target now, and which gate refuses.")
    asking_options(parser)
    args = parser.parse_args(words)
    config = configuration.load(args.config)
    try:
        text = partial(inquiries.status_text, as_json=args.json)
        _show(asyncio.run(inquiries.ask(place_of(args), "GET", "overview", "targets", read=text)))
    except inquiries.AskError as exc:
        print(f"{exc}\nIt could not be asked; this is what its journal says:\n", file=sys.stderr)
        _show(inquiries.status_from_journal(config, as_json=args.json))
        return 1
    return 0


def _journal(words: list[str]) -> int:
    parser = new_parser(
        "llm-remediator journal", "Decisions, newest last, with the gate that decided; works beside a running one."
    )
    config_option(parser)
    parser.add_argument("--target", help="only this target")
    parser.add_argument("--since", default="7d", metavar="DURATION", help="how far back (default 7d)")
    parser.add_argument("--limit", type=count, default=200, metavar="N", help="at most so many (default 200)")
    parser.add_argument("--attempt", type=count, metavar="ID", help="one attempt's steps and captured diagnostics instead")
    parser.add_argument("--json", action="store_true", help="JSON lines")
    args = parser.parse_args(words)
    config = configuration.load(args.config)
    if args.attempt is not None:
        _show(inquiries.attempt_text(config, args.attempt))
    else:
        _show(inquiries.journal_text(config, args.target, duration(args.since), args.limit, as_json=args.json))
    return 0


def _report(words: list[str]) -> int:
    parser = new_parser(
        "llm-remediator report",
        "What was restarted, or would have been in observe mode, what happened next, what was refused.",
    )
    config_option(parser)
    parser.add_argument("--since", default="7d", metavar="DURATION", help="how far back (default 7d)")
    parser.add_argument("--json", action="store_true", help="JSON")
    args = parser.parse_args(words)
    config = configuration.load(args.config)
    _show(inquiries.report_text(config, duration(args.since), as_json=args.json))
    return 0


def _drill(words: list[str]) -> int:
    parser = new_parser(
        "llm-remediator drill", "The whole path for a target without the restart call: a fresh proof, every gate."
    )
    asking_options(parser)
    parser.add_argument("name", help="target")
    args = parser.parse_args(words)
    must_be_target(configuration.load(args.config), args.name)
    path = f"targets/{inquiries.quoted(args.name)}/drill"
    text = partial(inquiries.explanation_text, as_json=args.json)
    _show(asyncio.run(inquiries.ask(place_of(args), "POST", path, read=text)))
    return 0


def _change(words: list[str]) -> int:
    action = words[0]
    says = {
        "pause": "Restart nothing (or not this target) until the pause ends by itself.",
        "resume": "End a pause now.",
        "rearm": "Take a target's latch off, after you found out why its restarts did not help.",
        "approve": "Approve the restart that awaits a person, once; every gate is asked again before it.",
    }[action]
    parser = new_parser(f"llm-remediator {action}", says)
    asking_options(parser)
    one = action in ("rearm", "approve")
    parser.add_argument("name", nargs=None if one else "?", help="target" if one else "target; all")
    parser.add_argument("--by", metavar="NAME", help="who you are, for the journal; default: the login name")
    if action == "pause":
        parser.add_argument("--for", dest="lasts", default="1h", metavar="DURATION", help="default 1h")
        parser.add_argument("--reason", default="", help="shown on the page and kept in the journal")
    args = parser.parse_args(words[1:])
    config = configuration.load(args.config)
    scope = ""
    if args.name is not None:
        must_be_target(config, args.name)
        scope = f"targets/{inquiries.quoted(args.name)}/"
    body = {"by": args.by or login()}
    if action == "pause":
        duration(args.lasts)
        body |= {"for": args.lasts, "reason": args.reason}
    text = partial(inquiries.changed_text, action, args.name)
    print(asyncio.run(inquiries.ask(place_of(args), "POST", f"{scope}{action}", read=text, body=body)))
    return 0


def _socket_proxy(words: list[str]) -> int:
    parser = new_parser(
        "llm-remediator socket-proxy",
        "Docker's socket without its power: reads, and restart and start by full id; all else is refused.",
    )
    parser.add_argument("--listen", required=True, metavar="HOST:PORT|unix:PATH", help="where the remediator reaches it")
    parser.add_argument("--socket", default="/var/run/docker.sock", metavar="PATH", help="the Docker Engine's socket")
    parser.add_argument("--only-label", metavar="KEY[=VALUE]", help="act only on containers with this label")
    parser.add_argument("--swarm", action="store_true", help="also list services, and force-update one without changing it")
    log_options(parser)
    args = parser.parse_args(words)
    logs.setup(args.log_level, args.log_format)
    asyncio.run(run_proxy(args.listen, SocketProxy(args.socket, swarm=args.swarm, only_label=args.only_label)))
    return 0


def _show(text: str) -> None:
    print(printable_lines(text), end="")


def shown(config: Config) -> str:
    """The configuration in force as JSON. Secrets are in files; the paths of incoming webhooks are secrets too."""
    masked = dataclasses.replace(config, notify=tuple(dataclasses.replace(n, url=origin_of(n.url)) for n in config.notify))
    return json.dumps(dataclasses.asdict(masked), indent=2, default=_plain, ensure_ascii=False) + "\n"


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, frozenset) else str(value)


def _version() -> str:
    try:
        return version("stuckproof")
    except PackageNotFoundError:
        return "unknown"


if __name__ == "__main__":
    sys.exit(main())
