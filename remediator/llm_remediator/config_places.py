"""Reads the places of a remediator.yml: services that we ask, Docker hosts, fixed commands."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from llm_common.config import REQUIRED, Reader
from llm_common.config.forms import DNS_LABEL
from llm_remediator.rules import RESTART
from llm_remediator.settings import DockerHost, Endpoint, FixedCommand, KubernetesAccess, LabelledHost

LOCAL = "local"


def _url(reader: Reader, key: str, value: object) -> str:
    try:
        parts = urlsplit(value) if isinstance(value, str) else None
        good = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)
        good = good and (parts is None or parts.port is None or parts.port > 0)
    except ValueError:
        good, parts = False, None
    if not good or parts is None or not isinstance(value, str):
        reader.problem(key, f"{value!r} is not a URL such as http://127.0.0.1:10140")
        return ""
    if parts.username or parts.password:
        reader.problem(
            key,
            "has credentials in it, which logs would show; use bearer_token_file or username, password_file",
        )
        return ""
    return value.rstrip("/")


def _endpoint_of(parent: Reader, key: str, value: object) -> Endpoint:
    if not isinstance(value, dict):
        return Endpoint(_url(parent, key, value))
    reader = Reader(parent.problems, parent.where(key), value)
    endpoint = Endpoint(
        url=_url(reader, "url", reader.text("url")),
        bearer_token_file=reader.secret_file("bearer_token_file"),
        username=reader.text("username", None),
        password_file=reader.secret_file("password_file"),
        **_tls_files(reader),
    )
    if (endpoint.username is None) != (endpoint.password_file is None):
        reader.problem("username", "username and password_file belong together; give both")
    reader.done()
    return endpoint


def _tls_files(reader: Reader) -> dict[str, str | None]:
    files = {key: reader.text(key, None) for key in ("ca_file", "cert_file", "key_file")}
    for key, path in files.items():
        if path is not None and not Path(path).is_file():
            reader.problem(key, f"{path} is not a file")
    if (files["cert_file"] is None) != (files["key_file"] is None):
        reader.problem("cert_file", "cert_file and key_file belong together; give both")
    return files


def read_endpoint(top: Reader, key: str, *, required: bool) -> Endpoint | None:
    """One service, a URL or a mapping; None if it is not given."""
    if not top.has(key):
        if required:
            top.problem(key, "is required: the URL of llm-exporter, e.g. http://127.0.0.1:10140")
        return None
    return _endpoint_of(top, key, top.raw(key))


def read_endpoints(top: Reader, key: str) -> tuple[Endpoint, ...]:
    """A list of services, or a single one."""
    if not top.has(key):
        return ()
    raw = top.raw(key)
    values = raw if isinstance(raw, list) else [raw]
    endpoints = tuple(_endpoint_of(top, f"{key}[{i}]", value) for i, value in enumerate(values))
    urls = [e.url for e in endpoints if e.url]
    for url in sorted({u for u in urls if urls.count(u) > 1}):
        top.problem(key, f"{url} is there twice; remove one")
    return endpoints


def read_hosts(reader: Reader) -> tuple[DockerHost, ...]:
    """`docker.hosts`: name to URL, or to a mapping with TLS files. Default: the local socket."""
    raw = reader.raw("hosts")
    reader.done()
    if raw is None:
        return (DockerHost(LOCAL, "unix:///var/run/docker.sock"),)
    if not isinstance(raw, dict) or not raw:
        reader.problem("hosts", "must be a mapping of names to URLs, e.g. {local: unix:///var/run/docker.sock}")
        return ()
    hosts = []
    for name, value in raw.items():
        at = Reader(
            reader.problems,
            reader.where(f"hosts.{name}"),
            value if isinstance(value, dict) else {"url": value},
        )
        url = at.text("url")
        files = _tls_files(at)
        if url and not re.fullmatch(r"unix:///\S+|tcp://[^\s/]+:[0-9]+|https?://[^\s/]+:[0-9]+", url):
            at.problem("url", f"{url!r} is not unix:///path, tcp://host:port or https://host:port")
        at.done()
        hosts.append(DockerHost(str(name), url, **files))
    return tuple(hosts)


def read_kubernetes(top: Reader) -> KubernetesAccess | None:
    """`kubernetes`: an empty mapping is the pod's own service account; None if it is not given at all."""
    if top.raw("kubernetes") is None:
        return None
    at = top.mapping("kubernetes")
    ca_file = at.text("ca_file", None)
    if ca_file is not None and not Path(ca_file).is_file():
        at.problem("ca_file", f"{ca_file} is not a file")
    access = KubernetesAccess(
        api=_url(at, "api", at.text("api")) if at.has("api") else None,
        token_file=at.secret_file("token_file"),
        ca_file=ca_file,
        namespace=at.text("namespace", None, form=DNS_LABEL),
        evict=at.flag("evict", True),
        lease=at.text("lease", None, form=DNS_LABEL),
        lease_duration=at.duration("lease_duration", 30.0, low=10.0),
    )
    at.done()
    return access


def read_labelled(top: Reader, hosts: tuple[DockerHost, ...]) -> tuple[LabelledHost, ...]:
    """`discovery.docker`: hosts whose labelled containers are targets."""
    reader = top.mapping("discovery")
    names = [host.name for host in hosts]
    found = []
    for at in reader.items("docker"):
        host = at.text("host", names[0] if len(names) == 1 else REQUIRED, choices=names)
        found.append(LabelledHost(host, at.duration("refresh", 30.0, low=1.0)))
        at.done()
    reader.done()
    return tuple(found)


def read_commands(top: Reader) -> tuple[FixedCommand, ...]:
    """`commands`: name to argv and timeout."""
    raw = top.raw("commands")
    if raw is None:
        return ()
    if not isinstance(raw, dict):
        top.problem("commands", "must be a mapping of names to {argv: […], timeout: …}")
        return ()
    commands = []
    for name, value in raw.items():
        at = Reader(top.problems, top.where(f"commands.{name}"), value)
        argv = tuple(at.strings("argv"))
        if argv and not argv[0].startswith("/"):
            at.problem("argv", f"{argv[0]!r} must be an absolute path: what runs must not depend on PATH")
        if at.has("argv") and not argv:
            at.problem("argv", "is empty: what is run?")
        if name == RESTART:
            at.problem("", "has the name of every target's own restart; give it another")
        commands.append(FixedCommand(str(name), argv, at.duration("timeout", 120.0, low=1.0)))
        at.done()
    return tuple(commands)
