"""`llm-remediator`: serves by default; subcommands look into the journal, ask a running one, or proxy the socket."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import getpass
import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from llm_common import logs
from llm_common.config import ConfigError, parse_duration
from llm_common.terminal import printable_lines
from llm_remediator import config as configuration
from llm_remediator import inquiries
from llm_remediator.app import Serving, run
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
    parser = _parser("llm-remediator", f"Restarts what is provably stuck. Subcommands: {COMMANDS}.")
    _config_file(parser)
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
    _logging(parser)
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
    parser = _parser("llm-remediator status", "What would be done to each target now, and which gate refuses.")
    _asking(parser)
    args = parser.parse_args(words)
    config = configuration.load(args.config)
    try:
        text = partial(inquiries.status_text, as_json=args.json)
        _show(asyncio.run(inquiries.ask(_place(args), "GET", "overview", "targets", read=text)))
    except inquiries.AskError as exc:
        print(f"{exc}\nIt could not be asked; this is what its journal says:\n", file=sys.stderr)
        _show(inquiries.status_from_journal(config, as_json=args.json))
        return 1
    return 0


def _journal(words: list[str]) -> int:
    parser = _parser(
        "llm-remediator journal", "Decisions, newest last, with the gate that decided; works beside a running one."
    )
    _config_file(parser)
    parser.add_argument("--target", help="only this target")
    parser.add_argument("--since", default="7d", metavar="DURATION", help="how far back (default 7d)")
    parser.add_argument("--limit", type=_count, default=200, metavar="N", help="at most so many (default 200)")
    parser.add_argument("--attempt", type=_count, metavar="ID", help="one attempt's steps and captured diagnostics instead")
    parser.add_argument("--json", action="store_true", help="JSON lines")
    args = parser.parse_args(words)
    config = configuration.load(args.config)
    if args.attempt is not None:
        _show(inquiries.attempt_text(config, args.attempt))
    else:
        _show(inquiries.journal_text(config, args.target, _duration(args.since), args.limit, as_json=args.json))
    return 0


def _report(words: list[str]) -> int:
    parser = _parser(
        "llm-remediator report",
        "What was restarted, or would have been in observe mode, what happened next, what was refused.",
    )
    _config_file(parser)
    parser.add_argument("--since", default="7d", metavar="DURATION", help="how far back (default 7d)")
    parser.add_argument("--json", action="store_true", help="JSON")
    args = parser.parse_args(words)
    config = configuration.load(args.config)
    _show(inquiries.report_text(config, _duration(args.since), as_json=args.json))
    return 0


def _drill(words: list[str]) -> int:
    parser = _parser(
        "llm-remediator drill", "The whole path for a target without the restart call: a fresh proof, every gate."
    )
    _asking(parser)
    parser.add_argument("name", help="target")
    args = parser.parse_args(words)
    _known(configuration.load(args.config), args.name)
    path = f"targets/{inquiries.quoted(args.name)}/drill"
    text = partial(inquiries.explanation_text, as_json=args.json)
    _show(asyncio.run(inquiries.ask(_place(args), "POST", path, read=text)))
    return 0


def _change(words: list[str]) -> int:
    action = words[0]
    says = {
        "pause": "Restart nothing (or not this target) until the pause ends by itself.",
        "resume": "End a pause now.",
        "rearm": "Take a target's latch off, after you found out why its restarts did not help.",
        "approve": "Approve the restart that awaits a person, once; every gate is asked again before it.",
    }[action]
    parser = _parser(f"llm-remediator {action}", says)
    _asking(parser)
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
        _known(config, args.name)
        scope = f"targets/{inquiries.quoted(args.name)}/"
    body = {"by": args.by or _login()}
    if action == "pause":
        _duration(args.lasts)
        body |= {"for": args.lasts, "reason": args.reason}
    text = partial(inquiries.changed_text, action, args.name)
    print(asyncio.run(inquiries.ask(_place(args), "POST", f"{scope}{action}", read=text, body=body)))
    return 0


def _socket_proxy(words: list[str]) -> int:
    parser = _parser(
        "llm-remediator socket-proxy",
        "Docker's socket without its power: reads, and restart and start by full id; all else is refused.",
    )
    parser.add_argument("--listen", required=True, metavar="HOST:PORT|unix:PATH", help="where the remediator reaches it")
    parser.add_argument("--socket", default="/var/run/docker.sock", metavar="PATH", help="the Docker Engine's socket")
    parser.add_argument("--only-label", metavar="KEY[=VALUE]", help="act only on containers with this label")
    parser.add_argument("--swarm", action="store_true", help="also list services, and force-update one without changing it")
    _logging(parser)
    args = parser.parse_args(words)
    logs.setup(args.log_level, args.log_format)
    asyncio.run(run_proxy(args.listen, SocketProxy(args.socket, swarm=args.swarm, only_label=args.only_label)))
    return 0


# --- parts of command lines


def _show(text: str) -> None:
    print(printable_lines(text), end="")


def _parser(prog: str, description: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=prog, description=description, allow_abbrev=False)


def _config_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config.file", dest="config", required=True, metavar="FILE", help="remediator.yml")


def _logging(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log.level", dest="log_level", default="info", choices=("debug", "info", "warning", "error"), help="default info"
    )
    parser.add_argument(
        "--log.format", dest="log_format", default="logfmt", choices=("logfmt", "json"), help="default logfmt"
    )


def _asking(parser: argparse.ArgumentParser) -> None:
    _config_file(parser)
    parser.add_argument(
        "--url", help="the running remediator; default http://127.0.0.1:10141, https if its web config has TLS"
    )
    parser.add_argument(
        "--web.config.file",
        dest="web_config",
        metavar="FILE",
        help="its web config file, for token and TLS; default: remediator-web.yml beside the configuration, if there",
    )
    parser.add_argument("--token-file", metavar="FILE", help="bearer token, instead of the web config file's")
    parser.add_argument("--username", metavar="NAME", help="basic authentication; with --password-file")
    parser.add_argument("--password-file", metavar="FILE")
    parser.add_argument("--ca-file", metavar="FILE", help="who signed its certificate")
    parser.add_argument("--cert-file", metavar="FILE", help="our own certificate, where it wants one; with --key-file")
    parser.add_argument("--key-file", metavar="FILE")
    parser.add_argument("--json", action="store_true", help="JSON")


def _place(args: argparse.Namespace) -> configuration.Endpoint:
    beside = Path(args.config).with_name("remediator-web.yml")
    web_config = args.web_config or (str(beside) if beside.is_file() else None)
    for one, other in (("username", "password_file"), ("cert_file", "key_file")):
        if (getattr(args, one) is None) != (getattr(args, other) is None):
            both = f"--{one} and --{other}".replace("_", "-")
            raise ConfigError(f"{both} belong together; give both")
    found = inquiries.place(args.url, web_config, args.token_file, args.ca_file)
    return dataclasses.replace(
        found,
        bearer_token_file=None if args.username is not None else found.bearer_token_file,
        username=args.username,
        password_file=args.password_file,
        cert_file=args.cert_file,
        key_file=args.key_file,
    )


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number < 2**63:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1")
    return number


def _login() -> str:
    """Who asks, as far as this machine knows; a user id without a name (a container's) is `uid N`."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as exc:
        raise ConfigError(str(exc)) from exc


def _known(config: Config, name: str) -> None:
    if config.target(name) is None:
        names = ", ".join(t.name for t in config.targets)
        raise ConfigError(f"there is no target {name!r}; there are: {names}")


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
