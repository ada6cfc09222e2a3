"""Reading each kind of source once: what it says becomes targets, and what is wrong is said with its place."""

from __future__ import annotations

import asyncio
import glob
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from llm_common.config import Reader, load_yaml
from llm_common.errors import ConfigError
from llm_exporter.bodies import BodyError, read_bounded
from llm_exporter.discovered import DEFAULT_PORT, LABEL, Found, SourceError, Template, bare
from llm_exporter.discovery_config import DockerSd, FileSd, HttpSd
from llm_exporter.fetch_errors import classify
from llm_exporter.scrape import Access, Scraper
from llm_exporter.target_config import Target

TIMEOUT = 10.0


async def read_files(source: FileSd, template: Template) -> Found:
    """The targets of files in Prometheus' ``file_sd`` format, YAML or JSON; a file that is broken touches no other."""

    def read() -> Found:
        targets: list[Target] = []
        problems: list[str] = []
        whole = True
        for pattern in source.files:
            paths = sorted(glob.glob(pattern))
            if not paths and not glob.has_magic(pattern):
                problems.append(f"{pattern}: there is no such file")
            for path in paths:
                try:
                    found = groups(_document(path), path, template)
                except (SourceError, ConfigError) as error:
                    found = Found((), (str(error),), whole=False)
                targets += found.targets
                problems += found.problems
                whole = whole and found.whole
        return Found(targets, problems, whole)

    return await asyncio.to_thread(read)


def _document(path: str) -> object:
    """A file's content, JSON by its name and YAML otherwise, as Prometheus tells them apart."""
    if not path.endswith(".json"):
        return load_yaml(path)
    try:
        return json.loads(Path(path).read_bytes())
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: not valid JSON: {error}") from error


async def read_url(source: HttpSd, template: Template, scraper: Scraper) -> Found:
    """The targets of a URL in Prometheus' ``http_sd`` format."""
    page = await scraper.request(
        "GET", Access(source.url, source.bearer_token_file), "", TIMEOUT,
        headers={"Accept": "application/json", "X-Prometheus-Refresh-Interval-Seconds": f"{source.refresh:g}"},
    )  # fmt: skip
    if page.status != 200:
        raise SourceError(f"{page.kind}: {page.error}" if page.status is None else f"HTTP {page.status}, 200 is needed")

    def read() -> Found:
        try:
            document = json.loads(page.body)
        except (ValueError, RecursionError) as error:
            raise SourceError(f"the answer is not JSON: {error}") from error
        return groups(document, "the answer", template)

    # Thousands of targets take longer to read than the event loop may be held.
    return await asyncio.to_thread(read)


def groups(document: object, where: str, template: Template) -> Found:
    """Targets of a list of target groups.

    ``__scheme__`` and ``__metrics_path__`` are honoured as Prometheus does; ``__engine__`` and ``__name__`` are ours; other
    labels go on ``llm_target_info``, except those that begin with two underscores.
    """
    if not isinstance(document, list):
        raise SourceError(f"{where}: must be a list of target groups")
    problems: list[str] = []
    found: list[Target] = []
    for index, entry in enumerate(document):
        reader = Reader(problems, f"{where}[{index}]", entry)
        labels = reader.text_mapping("labels")
        for address in reader.strings("targets", ()):
            try:
                found.append(_target(address, labels, template))
            except ValueError as error:
                reader.problem("targets", str(error))
        reader.done()
    return Found(found, problems, whole=not problems)


def _target(address: str, labels: Mapping[str, str], template: Template) -> Target:
    url = address if "://" in address else f"{labels.get('__scheme__', 'http')}://{address}"
    path = labels.get("__metrics_path__")
    return template.target(
        url,
        labels,
        name=labels.get("__name__"),
        engine=labels.get("__engine__", "auto"),
        # Prometheus' default says nothing: the engine may keep its metrics elsewhere.
        metrics_path=None if path == "/metrics" else path,
    )


async def read_docker(source: DockerSd, template: Template) -> Found:
    """Running containers with the label ``stuckproof.target``: its value is the name (``true``: the container's own)."""
    found: list[Target] = []
    problems: list[str] = []
    for container in await _containers(source.host):
        try:
            found.append(_of_container(container, source, template))
        except ValueError as error:
            problems.append(f"container {str(container.get('Id', '?'))[:12]}: {error}")
    return Found(found, problems)


async def _containers(host: str) -> list[Mapping[str, Any]]:
    """Docker's own list: addresses and labels in one answer, so that it cannot race with a container that vanishes."""
    unix = host.startswith("unix://")
    connector = aiohttp.UnixConnector(host.removeprefix("unix://")) if unix else aiohttp.TCPConnector()
    base = "http://docker" if unix else host.replace("tcp://", "http://", 1)
    wanted = json.dumps({"label": [LABEL], "status": ["running"]})
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(TIMEOUT)) as session,
            session.get(f"{base}/containers/json", params={"filters": wanted}, allow_redirects=False) as response,
        ):
            answer: Any = json.loads(await read_bounded(response.content.iter_any(), ""))
            if response.status != 200 or not isinstance(answer, list):
                raise SourceError(f"Docker at {bare(host)}: HTTP {response.status}: {str(answer)[:200]}")
            return [entry for entry in answer if isinstance(entry, dict)]
    except (TimeoutError, OSError, aiohttp.ClientError, BodyError, ValueError, RecursionError) as error:
        raise SourceError(f"Docker at {bare(host)}: {classify(error)[1]}") from error


def _of_container(container: Mapping[str, Any], source: DockerSd, template: Template) -> Target:
    labels: Mapping[str, str] = container.get("Labels") or {}
    networks: Mapping[str, Any] = (container.get("NetworkSettings") or {}).get("Networks") or {}
    chosen = (networks.get(source.network) if source.network else next(iter(networks.values()), None)) or {}
    address = chosen.get("IPAddress") or chosen.get("GlobalIPv6Address") or ("127.0.0.1" if "host" in networks else None)
    if address is None:
        raise ValueError(f"has no address in the network {source.network or '(any)'}")
    own_name = next(iter(container.get("Names") or ()), "").removeprefix("/")
    return template.workload(own_name, address, labels.get(LABEL, ""), labels, {}, DEFAULT_PORT)
