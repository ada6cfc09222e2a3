"""Do a target's url at the exporter and its container belong together? A wrong pair restarts the wrong one. Pure."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from llm_remediator.containers import Container

_DEFAULT_PORTS = {"http": 80, "https": 443}


def mismatch(url: str, box: Container) -> str:
    """A warning when the url's host and port are not the container's, or empty. Unknown is no warning."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return ""
    if not host or port is None or box.network_mode == "host" or box.network_mode.startswith("container:"):
        return ""
    names = {a.lower() for a in (*box.addresses, box.name, box.id[:12])}
    if host in names:
        if box.ports and port not in box.ports:
            exposed = ", ".join(str(p) for p in box.ports)
            return (
                f"{url}: {box.name} is that host, but exposes {exposed}, not {port}; engines beside it share the host name?"
            )
        return ""
    if any(published == port for _, published in box.published):
        return ""
    if _is_foreign(host, box):
        return f"{url} does not lead to {box.name} ({', '.join(sorted(names))}): check url and container of this target"
    return ""


def _is_foreign(host: str, box: Container) -> bool:
    """Whether the host surely is not this container: an address of another, or a port that it does not publish."""
    if not box.addresses and not box.published:
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        # A DNS name: it may be an alias that inspect does not list, unless the container publishes ports.
        return host == "localhost" or bool(box.addresses)
    return True
