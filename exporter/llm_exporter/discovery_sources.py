"""Reading each kind of source once: what it says becomes targets, and what is wrong becomes an error with its place."""

from __future__ import annotations

import asyncio
import glob
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from llm_common.config import Reader, load_yaml
from llm_common.errors import ConfigError
from llm_exporter.bodies import BodyError, read_bounded
from llm_exporter.config import NAME, DockerSd, FileSd, HttpSd, label_problems
from llm_exporter.engines import engines
from llm_exporter.fetch_errors import classify
from llm_exporter.scrape import Access, Scraper
from llm_exporter.target_config import Patience, Target
from llm_exporter.urls import base_url, default_name

_log = logging.getLogger("llm.discovery")
DOCKER_TIMEOUT = 10
LABEL = "stuckproof.target"


class SourceError(Exception):
    """A source could not be read; the text says which part and why."""


async def read_files(source: FileSd, defaults: Patience) -> Sequence[Target]:
    """The targets of files in Prometheus' ``file_sd`` format, YAML or JSON."""

    def read() -> list[Target]:
        found: list[Target] = []
        for pattern in source.files:
            for path in sorted(glob.glob(pattern)):
                found += groups(load_yaml(path), path, defaults)
        return found

    return await asyncio.to_thread(read)


async def read_url(source: HttpSd, defaults: Patience, scraper: Scraper) -> Sequence[Target]:
    """The targets of a URL in Prometheus' ``http_sd`` format."""
    page = await scraper.request(
        "GET", Access(source.url, source.bearer_token_file), "", 10.0,
        headers={"Accept": "application/json", "X-Prometheus-Refresh-Interval-Seconds": f"{source.refresh:g}"},
    )  # fmt: skip
    if page.status != 200:
        raise SourceError(f"{page.kind}: {page.error}" if page.status is None else f"HTTP {page.status}, 200 is needed")
    try:
        document = json.loads(page.body)
    except ValueError as error:
        raise SourceError(f"the answer is not JSON: {error}") from error
    return groups(document, "http_sd", defaults)


def groups(document: object, where: str, defaults: Patience) -> list[Target]:
    """Targets of a list of target groups; ``ConfigError`` with every problem.

    ``__scheme__`` and ``__metrics_path__`` are honoured as Prometheus does; ``__engine__`` and ``__name__`` are ours; other
    labels go on ``llm_target_info``, except those that begin with two underscores.
    """
    problems: list[str] = []
    if not isinstance(document, list):
        raise ConfigError(f"{where}: must be a list of target groups")
    found: list[Target] = []
    for index, entry in enumerate(document):
        reader = Reader(problems, f"{where}[{index}]", entry)
        labels = reader.text_mapping("labels")
        for address in reader.strings("targets"):
            try:
                found.append(_target(address, labels, defaults))
            except ValueError as error:
                reader.problem("targets", str(error))
        reader.done()
    if problems:
        raise ConfigError(problems)
    return found


def _target(address: str, labels: Mapping[str, str], defaults: Patience) -> Target:
    scheme = labels.get("__scheme__", "http")
    base = base_url(address if "://" in address else f"{scheme}://{address}")
    name = labels.get("__name__", default_name(base))
    if NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no name of a target")
    shown = {key: value for key, value in labels.items() if not key.startswith("__")}
    for problem in label_problems(shown):
        raise ValueError(problem)
    path = labels.get("__metrics_path__")
    return Target(
        name, base, engine_named(labels.get("__engine__", "auto")), shown, None if path == "/metrics" else path, defaults
    )


def engine_named(kind: str) -> str:
    """An engine kind as a discovery names it; ``ValueError`` if there is none of that name."""
    known = ("auto", *(engine.kind for engine in engines()))
    if kind not in known:
        raise ValueError(f"engine {kind!r} is not one of {', '.join(known)}")
    return kind


async def read_docker(source: DockerSd, defaults: Patience) -> Sequence[Target]:
    """Running containers with the label ``stuckproof.target``: its value is the name, ``stuckproof.port`` the port."""
    found = []
    for container in await _containers(source.host):
        try:
            found.append(_of_container(container, source, defaults))
        except SourceError as error:
            # One badly labelled container must not hide the others.
            _log.warning("a container is not watched: %s", error)
    return found


async def _containers(host: str) -> list[Mapping[str, Any]]:
    """Docker's own list: addresses and labels in one answer, so that it cannot race with a container that vanishes."""
    unix = host.startswith("unix://")
    connector = aiohttp.UnixConnector(host.removeprefix("unix://")) if unix else aiohttp.TCPConnector()
    base = "http://docker" if unix else host.replace("tcp://", "http://", 1)
    wanted = json.dumps({"label": [LABEL], "status": ["running"]})
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(DOCKER_TIMEOUT)) as session,
            session.get(f"{base}/containers/json", params={"filters": wanted}, allow_redirects=False) as response,
        ):
            answer = json.loads(await read_bounded(response.content.iter_any(), ""))
            if response.status != 200 or not isinstance(answer, list):
                raise SourceError(f"Docker at {host}: HTTP {response.status}: {str(answer)[:200]}")
            return answer
    except (TimeoutError, OSError, aiohttp.ClientError, BodyError, ValueError) as error:
        raise SourceError(f"Docker at {host}: {classify(error)[1]}") from error


def _of_container(container: Mapping[str, Any], source: DockerSd, defaults: Patience) -> Target:
    labels = container.get("Labels") or {}
    name = labels[LABEL]
    where = f"container {container.get('Id', '')[:12]}"
    port = labels.get("stuckproof.port", "8000")
    if NAME.fullmatch(name) is None or not port.isdecimal():
        raise SourceError(f"{where}: {LABEL}={name!r} must be a name and stuckproof.port={port!r} a port")
    networks: Mapping[str, Any] = (container.get("NetworkSettings") or {}).get("Networks") or {}
    chosen = networks.get(source.network) if source.network else next(iter(networks.values()), None)
    address = (chosen or {}).get("IPAddress") or ("127.0.0.1" if "host" in networks else None)
    if address is None:
        raise SourceError(f"{where}: has no address in the network {source.network or '(any)'}")
    shown = {"team": labels["stuckproof.team"]} if "stuckproof.team" in labels else {}
    try:
        engine = engine_named(labels.get("stuckproof.engine", "auto"))
    except ValueError as error:
        raise SourceError(f"{where}: {error}") from error
    return Target(name, base_url(f"http://{address}:{port}"), engine, shown, None, defaults)
