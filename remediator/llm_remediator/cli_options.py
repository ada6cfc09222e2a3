"""Options that several subcommands share, and what they are read into."""

from __future__ import annotations

import argparse
import dataclasses
import getpass
import os
from pathlib import Path

from llm_common.config import ConfigError, parse_duration
from llm_remediator import inquiries
from llm_remediator.config import Config, Endpoint


def new_parser(prog: str, description: str) -> argparse.ArgumentParser:
    """A parser of full option names: an abbreviation must not change its meaning with the next release."""
    return argparse.ArgumentParser(prog=prog, description=description, allow_abbrev=False)


def config_option(parser: argparse.ArgumentParser) -> None:
    """`--config.file`."""
    parser.add_argument("--config.file", dest="config", required=True, metavar="FILE", help="remediator.yml")


def log_options(parser: argparse.ArgumentParser) -> None:
    """`--log.level`, `--log.format`."""
    parser.add_argument(
        "--log.level", dest="log_level", default="info", choices=("debug", "info", "warning", "error"), help="default info"
    )
    parser.add_argument(
        "--log.format", dest="log_format", default="logfmt", choices=("logfmt", "json"), help="default logfmt"
    )


def asking_options(parser: argparse.ArgumentParser) -> None:
    """Where the running remediator is, and who asks."""
    config_option(parser)
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


def place_of(args: argparse.Namespace) -> Endpoint:
    """The running remediator that `asking_options` name; `ConfigError` for half a pair."""
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


def count(text: str) -> int:
    """An argument that counts something, or names a row."""
    number = int(text)
    if not 1 <= number < 2**63:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1")
    return number


def login() -> str:
    """Who asks, as far as this machine knows; a user id without a name (a container's) is `uid N`."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def duration(text: str) -> float:
    """Seconds; `ConfigError` otherwise."""
    try:
        return parse_duration(text)
    except ValueError as exc:
        raise ConfigError(str(exc)) from exc


def must_be_target(config: Config, name: str) -> None:
    """`ConfigError` that names the targets, for a name that is none."""
    if config.target(name) is None:
        names = ", ".join(t.name for t in config.targets)
        raise ConfigError(f"there is no target {name!r}; there are: {names}")
