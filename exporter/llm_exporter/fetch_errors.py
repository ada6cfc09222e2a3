"""Why a request failed, as one of the judge's kinds and in words that name the address that failed."""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from collections.abc import Iterator

import aiohttp

from llm_exporter.bodies import BodyError
from llm_exporter.judge import Failure

NO_CONNECTION = "no connection in time"

_BY_ERRNO: dict[int, Failure] = {
    errno.ECONNREFUSED: "refused",
    errno.ECONNRESET: "reset",
    errno.EPIPE: "reset",
    errno.ECONNABORTED: "reset",
    errno.ETIMEDOUT: "timeout",
    errno.EHOSTUNREACH: "noroute",
    errno.ENETUNREACH: "noroute",
    errno.EHOSTDOWN: "noroute",
    errno.ENETDOWN: "noroute",
    errno.EADDRNOTAVAIL: "noroute",
    errno.EAFNOSUPPORT: "noroute",
}
# Several addresses may fail in different ways. The most telling one speaks: a refusal comes from a live host.
_TELLING: tuple[Failure, ...] = ("refused", "reset", "timeout", "noroute")
_ERRNO_IN_TEXT = re.compile(r"\[Errno (\d+)\]")
_ADDRESS_IN_TEXT = re.compile(r"\[Errno \d+\] Connect call failed \('([^']+)', (\d+)[^)]*\)")


def classify(error: BaseException) -> tuple[Failure, str]:
    """Kind and words of a failed request."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "timeout", NO_CONNECTION
    if isinstance(error, TimeoutError):
        return "timeout", "no answer in time"
    if isinstance(error, BodyError):
        return "other", str(error)
    if isinstance(error, aiohttp.ClientConnectorDNSError | socket.gaierror):
        cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
        return "dns", f"the host name cannot be resolved: {cause.strerror or _plain(cause)}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "tls", f"the server's certificate is not accepted: {_plain(error.certificate_error)}"
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return "tls", f"TLS failed: {_plain(error)}; is this an https server?"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "reset", "the connection was closed before an answer came"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "reset", "the connection was closed in the middle of the answer"
    if isinstance(error, OSError):
        return _of_os_error(error)
    if isinstance(error, aiohttp.ClientResponseError):
        # The parser quotes the bytes on lines of their own; a page and a log line want the sentence only.
        words = (error.message or type(error).__name__).partition("\n")[0].rstrip(":")
        return "other", f"protocol: what answers does not speak HTTP: {words}"
    return "other", f"{type(error).__name__}: {_plain(error)}"


def _of_os_error(error: OSError) -> tuple[Failure, str]:
    numbers = list(_errnos(error))
    kinds = [_BY_ERRNO[number] for number in numbers if number in _BY_ERRNO]
    kind: Failure = next((kind for kind in _TELLING if kind in kinds), "other")
    words = " and ".join(f"{host} port {port}: {_word(int(number))}" for number, host, port in _addresses(error))
    return kind, words or _word(numbers[0]) if numbers else _plain(error)


def _errnos(error: OSError) -> Iterator[int]:
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if inner.errno:
        yield inner.errno
    for text in _ERRNO_IN_TEXT.findall(str(inner)):
        yield int(text)


def _addresses(error: OSError) -> list[tuple[str, str, str]]:
    text = str(error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error)
    return [
        (match.group(0).split("]")[0].removeprefix("[Errno "), match.group(1), match.group(2))
        for match in _ADDRESS_IN_TEXT.finditer(text)
    ]


def _word(number: int) -> str:
    kind = _BY_ERRNO.get(number)
    words = {
        "refused": "refused",
        "reset": "the connection was reset",
        "timeout": "no answer",
        "noroute": "no route",
    }
    return words.get(kind or "", os.strerror(number))


def _plain(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return " ".join(text.split())[:300]
