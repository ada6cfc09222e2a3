"""What tests need of this machine's own network: a port that is free, and a certificate for its address."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path


def free_port() -> int:
    """A loopback port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def self_signed(folder: Path, name: str = "x") -> tuple[Path, Path]:
    """Certificate and key for 127.0.0.1, as ``cert.pem`` and ``key.pem``; written anew at every call."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    request = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1")
    names = ("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1")
    command = ["openssl", "req", *request, *names, "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key
