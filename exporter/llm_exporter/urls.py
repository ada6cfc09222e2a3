"""Base URLs of targets: what people paste, brought to one form without path of an endpoint and without credentials."""

from __future__ import annotations

from urllib.parse import urlsplit

# People paste what their client uses; the engine adapters know the paths below the base.
_ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/models", "/v1", "/metrics", "/health")


def base_url(text: str) -> str:
    """The base URL of a server, without trailing slash; ``ValueError`` says what is wrong and what to write."""
    text = text.strip()
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{text!r} is not a URL: {error}; write http://host:port, IPv6 as http://[::1]:port") from error
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"{text!r}: only http and https are read, not {parts.scheme}")
    if not parts.hostname or any(character.isspace() or ord(character) < 32 for character in url):
        raise ValueError(f"{text!r} names no host; write http://host:port")
    if parts.username is not None or parts.password is not None:
        raise ValueError("credentials do not belong into a URL; put the token into a file and name it in bearer_token_file")
    if parts.query or parts.fragment:
        raise ValueError(f"{text!r}: give the server's base URL, without query or fragment")
    if "[" not in parts.netloc and parts.netloc.count(":") > 1:
        raise ValueError(f"{text!r}: an IPv6 address belongs into brackets: http://[::1]:8000")
    path = parts.path.rstrip("/")
    for endpoint in _ENDPOINTS:
        if path.endswith(endpoint):
            path = path.removesuffix(endpoint).rstrip("/")
            break
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{f':{port}' if port is not None else ''}{path}"


def default_name(base: str) -> str:
    """The name of a target that was given none: host and port, and the path if there is one."""
    parts = urlsplit(base)
    return parts.netloc + parts.path.replace("/", "_")
