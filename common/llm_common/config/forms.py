"""Forms of texts in configuration files: a pattern for the program, and words with an example for people."""

from __future__ import annotations

from typing import NamedTuple


class Form(NamedTuple):
    """What the whole of a text must match, and how an error says it: ``must be`` and these words."""

    pattern: str
    words: str


URL = Form(r"https?://\S+", "a URL such as http://10.0.0.5:9090")
PATH = Form(r"/\S*", "a path such as /metrics")
DOCKER_HOST = Form(r"(unix|tcp|http|https)://\S+", "an address such as unix:///var/run/docker.sock or tcp://10.0.0.5:2376")
DNS_LABEL = Form(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "a name of small letters, digits and dashes, as Kubernetes has them")
