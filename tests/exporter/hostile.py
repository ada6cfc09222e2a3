"""Raw TCP servers that behave as real ones do on a bad day; the client under test is the real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw_server(behaviour: Behaviour, host: str = "127.0.0.1") -> AsyncIterator[str]:
    """Base URL of a TCP server that reads one request head and then behaves as told."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            await behaviour(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            tasks.discard(task)

    server = await asyncio.start_server(handle, host, 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


def says(body: bytes, head: str = "", status: str = "200 OK") -> Behaviour:
    """Answers once with these headers and this body."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body)
        await writer.drain()

    return behave


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accepts and says nothing until the client leaves."""
    await reader.read()


async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends a byte every 20 ms for ever: each read succeeds, the whole never does."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        writer.write(b"#")
        await writer.drain()
        await asyncio.sleep(0.02)


async def resets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Aborts the connection (RST) instead of answering."""
    writer.transport.abort()


async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Closes without a byte."""


async def truncates(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Promises 1000 bytes and closes after ten."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nvllm:x 1.0")
    await writer.drain()


async def floods(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends comments without end, as fast as it can."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        writer.write(b"# nothing to see here\n" * 4096)
        await writer.drain()
