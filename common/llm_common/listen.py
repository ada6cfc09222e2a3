"""Listen addresses as Prometheus' exporters take them."""

from __future__ import annotations

import ipaddress

from llm_common.errors import ConfigError


def parse_listen(address: str) -> tuple[str, int]:
    """Host and port of a listen address; ``:10140`` is every address (host ""), IPv6 is ``[::1]:10140``."""
    host, colon, port = address.rpartition(":")
    bare_v6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535 or bare_v6:
        raise ConfigError(f"listen address {address!r}: write HOST:PORT, :PORT or [IPV6]:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(address: str) -> bool:
    """Whether a listen address can be reached from this machine only."""
    host, _ = parse_listen(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
