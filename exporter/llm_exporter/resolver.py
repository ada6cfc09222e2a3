"""Name resolution that asks for every address of both families.

aiohttp's own resolver leaves IPv6 out on machines without a global IPv6 address, and then a server that listens on
``::1`` alone cannot be reached as ``localhost``.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult


class EveryAddressResolver(AbstractResolver):
    """Resolves with ``getaddrinfo`` in a thread; all addresses, in the system's order."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a host name; ``OSError`` if there are none."""
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family)
        if host == "localhost":
            # RFC 6761 names both loopbacks; many hosts files forget one of them.
            known = {entry[4][0] for entry in found}
            for ip in {"127.0.0.1", "::1"} - known:
                found += await asyncio.get_running_loop().getaddrinfo(ip, port, type=socket.SOCK_STREAM)
        results = []
        for number, _, proto, _, whole in found:
            address: tuple[Any, ...] = whole
            scoped = number == socket.AF_INET6 and len(address) == 4 and address[3]
            ip = f"{address[0]}%{address[3]}" if scoped and "%" not in str(address[0]) else str(address[0])
            results.append(
                ResolveResult(
                    hostname=host,
                    host=ip,
                    port=int(address[1]),
                    family=number,
                    proto=proto,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
            )
        return results

    async def close(self) -> None:
        """Nothing is held open."""
