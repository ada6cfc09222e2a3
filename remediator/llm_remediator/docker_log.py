"""Docker's log stream as text. Pure."""

from __future__ import annotations

_NO_NULS = dict.fromkeys(range(8))


def plain_log(raw: bytes) -> str:
    """Docker's multiplexed log stream without its 8-byte frame headers; a TTY's raw stream as it is.

    The beginning may be cut anywhere, so frames are found by their shape: stream 1 or 2, three zeros, length.
    A cut header leaves a stray character at most.
    """
    out = bytearray()
    at = 0
    while at < len(raw):
        head = raw[at : at + 8]
        if len(head) == 8 and head[0] in (1, 2) and head[1:4] == b"\0\0\0":
            size = int.from_bytes(head[4:], "big")
            out += raw[at + 8 : at + 8 + size]
            at += 8 + size
        else:
            nxt = min(
                (n for n in (raw.find(bytes([s, 0, 0, 0]), at + 1) for s in (1, 2)) if n > 0),
                default=len(raw),
            )
            out += raw[at:nxt]
            at = nxt
    return out.decode("utf-8", "replace").translate(_NO_NULS)
