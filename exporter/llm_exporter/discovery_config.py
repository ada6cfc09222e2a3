"""``discovery:`` where targets come from that the file does not name."""

from __future__ import annotations

from dataclasses import dataclass

from llm_common.config import Reader
from llm_common.config.forms import DNS_LABEL, DOCKER_HOST, URL


@dataclass(frozen=True, slots=True)
class FileSd:
    """``discovery.file_sd[]``: files in Prometheus' own format; `files` are glob patterns."""

    files: tuple[str, ...]
    refresh: float = 30.0


@dataclass(frozen=True, slots=True)
class HttpSd:
    """``discovery.http_sd[]``: a URL that answers Prometheus' list of target groups."""

    url: str
    refresh: float = 60.0
    bearer_token_file: str | None = None


@dataclass(frozen=True, slots=True)
class DockerSd:
    """``discovery.docker[]``: containers of one Docker host that carry the label ``stuckproof.target``."""

    host: str = "unix:///var/run/docker.sock"
    refresh: float = 15.0
    network: str | None = None


@dataclass(frozen=True, slots=True)
class KubernetesSd:
    """``discovery.kubernetes[]``: pods of one namespace; without `api` the exporter's own service account is used."""

    selector: str = "stuckproof.target"
    namespace: str | None = None
    refresh: float = 15.0
    api: str | None = None
    token_file: str | None = None
    ca_file: str | None = None


@dataclass(frozen=True, slots=True)
class Discovery:
    """``discovery:`` where more targets come from; one that vanishes is dropped after `grace` seconds."""

    file_sd: tuple[FileSd, ...] = ()
    http_sd: tuple[HttpSd, ...] = ()
    docker: tuple[DockerSd, ...] = ()
    kubernetes: tuple[KubernetesSd, ...] = ()
    grace: float = 300.0

    def __bool__(self) -> bool:
        return bool(self.file_sd or self.http_sd or self.docker or self.kubernetes)


def read_discovery(reader: Reader) -> Discovery:
    """Read ``discovery:``."""
    files = []
    for entry in reader.items("file_sd"):
        patterns = entry.strings("files")
        files.append(FileSd(tuple(patterns), entry.duration("refresh", 30.0, low=1.0)))
        entry.done()
    urls = []
    for entry in reader.items("http_sd"):
        url = entry.text("url", form=URL)
        token = entry.secret_file("bearer_token_file")
        urls.append(HttpSd(url, entry.duration("refresh", 60.0, low=1.0), token))
        entry.done()
    hosts = []
    for entry in reader.items("docker"):
        host = entry.text("host", "unix:///var/run/docker.sock", form=DOCKER_HOST)
        hosts.append(DockerSd(host, entry.duration("refresh", 15.0, low=1.0), entry.text("network", None)))
        entry.done()
    pods = []
    for entry in reader.items("kubernetes"):
        pods.append(
            KubernetesSd(
                selector=entry.text("selector", "stuckproof.target"),
                namespace=entry.text("namespace", None, form=DNS_LABEL),
                refresh=entry.duration("refresh", 15.0, low=1.0),
                api=entry.text("api", None, form=URL),
                token_file=entry.secret_file("token_file"),
                ca_file=entry.text("ca_file", None),
            )
        )
        entry.done()
    discovery = Discovery(tuple(files), tuple(urls), tuple(hosts), tuple(pods), reader.duration("grace", 300.0))
    reader.done()
    return discovery
