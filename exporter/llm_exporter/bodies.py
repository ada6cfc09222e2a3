"""Bodies of answers, bounded: a server that is not trusted may send a huge page or a compressed bomb."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterable

MAX_BODY = 16 * 1024 * 1024
# A metrics page compresses 10 to 40 times; what shrinks more than 200 times was made to explode.
MAX_RATIO = 200
_RATIO_FREE = 256 * 1024


class BodyError(Exception):
    """The body breaks a limit or cannot be decoded; its text begins with ``oversize:`` or ``encoding:``."""


async def read_bounded(chunks: AsyncIterable[bytes], encoding: str) -> bytes:
    """The whole decoded body, or ``BodyError`` as soon as it passes a limit; never holds more than `MAX_BODY`.

    Args:
        chunks: The raw body as it arrives.
        encoding: The value of Content-Encoding, ``""`` for none.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return await _plain(chunks)
    if encoding in ("gzip", "x-gzip"):
        return await _gunzipped(chunks)
    raise BodyError(f"encoding: Content-Encoding {encoding[:40]!r} was not asked for and cannot be read")


async def _plain(chunks: AsyncIterable[bytes]) -> bytes:
    body = bytearray()
    async for chunk in chunks:
        if len(body) + len(chunk) > MAX_BODY:
            raise BodyError(f"oversize: the body is larger than {MAX_BODY >> 20} MiB")
        body += chunk
    return bytes(body)


async def _gunzipped(chunks: AsyncIterable[bytes]) -> bytes:
    inflater = zlib.decompressobj(wbits=31)
    body = bytearray()
    received = 0
    async for chunk in chunks:
        received += len(chunk)
        while chunk:
            try:
                body += inflater.decompress(chunk, 1 << 16)
            except zlib.error as error:
                raise BodyError(f"encoding: the gzip body is broken: {error}") from error
            if len(body) > MAX_BODY:
                raise BodyError(f"oversize: the body is larger than {MAX_BODY >> 20} MiB")
            if len(body) > _RATIO_FREE and len(body) > MAX_RATIO * received:
                raise BodyError(f"oversize: the gzip body expands more than {MAX_RATIO} times")
            chunk = inflater.unconsumed_tail
            if inflater.eof:
                # A gzip file may have several members; each continues the body.
                chunk = inflater.unused_data
                if chunk:
                    inflater = zlib.decompressobj(wbits=31)
    if not inflater.eof:
        raise BodyError("encoding: the gzip body ends early")
    return bytes(body)
