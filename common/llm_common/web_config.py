"""The web config file: TLS and credentials, as Prometheus' exporters read them."""

from __future__ import annotations

import importlib
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llm_common.config import Reader, load_yaml
from llm_common.errors import ConfigError

_TLS_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "RequestClientCert": ssl.CERT_OPTIONAL,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}


@dataclass(frozen=True)
class WebConfig:
    """The parts of Prometheus' web config file that we support, and our own key ``bearer_token_file``."""

    cert_file: str | None = None
    key_file: str | None = None
    client_ca_file: str | None = None
    client_auth_type: str = "NoClientCert"
    min_version: str = "TLS12"
    basic_auth_users: dict[str, str] = field(default_factory=dict)
    bearer_token_file: str | None = None

    @property
    def has_credentials(self) -> bool:
        """Whether a caller must show who he is: a token, a password, or a verified client certificate."""
        return bool(
            self.basic_auth_users or self.bearer_token_file or _CLIENT_AUTH[self.client_auth_type] is ssl.CERT_REQUIRED
        )

    @classmethod
    def load(cls, path: str) -> WebConfig:
        """Read and check a web config file; ``ConfigError`` lists everything that is wrong."""
        problems: list[str] = []
        top = Reader(problems, "", load_yaml(path))
        tls = top.mapping("tls_server_config")
        config = cls(
            cert_file=_file(tls, "cert_file"),
            key_file=_file(tls, "key_file"),
            client_ca_file=_file(tls, "client_ca_file"),
            client_auth_type=tls.text("client_auth_type", "NoClientCert", choices=tuple(_CLIENT_AUTH)),
            min_version=tls.text("min_version", "TLS12", choices=tuple(_TLS_VERSIONS)),
            basic_auth_users=top.text_mapping("basic_auth_users"),
            bearer_token_file=top.secret_file("bearer_token_file"),
        )
        if (config.cert_file is None) != (config.key_file is None):
            tls.problem("cert_file", "cert_file and key_file belong together; give both")
        if config.client_auth_type != "NoClientCert" and config.client_ca_file is None:
            tls.problem("client_ca_file", f"is required by client_auth_type: {config.client_auth_type}")
        for user, hashed in config.basic_auth_users.items():
            if not hashed.startswith(("$2a$", "$2b$", "$2y$")):
                top.problem(f"basic_auth_users.{user}", "must be a bcrypt hash, as htpasswd -nBC 10 prints it")
        if config.basic_auth_users and bcrypt() is None:
            mend = "pip install 'stuckproof[basic-auth]', or use bearer_token_file"
            top.problem("basic_auth_users", f"needs the Python module bcrypt; {mend}")
        tls.done()
        top.done()
        if not problems:
            try:
                config.ssl_context()
            except (ssl.SSLError, OSError) as error:
                problems.append(f"tls_server_config: {error}; are certificate and key PEM files of one pair?")
        if problems:
            raise ConfigError([f"{path}: {problem}" for problem in problems])
        return config

    def ssl_context(self) -> ssl.SSLContext | None:
        """The server's TLS context, or None for plain HTTP."""
        if self.cert_file is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _TLS_VERSIONS[self.min_version]
        context.load_cert_chain(self.cert_file, self.key_file)
        if self.client_ca_file is not None:
            context.load_verify_locations(self.client_ca_file)
            context.verify_mode = _CLIENT_AUTH[self.client_auth_type]
        return context


def _file(reader: Reader, key: str) -> str | None:
    path = reader.text(key, None)
    if path is not None and not Path(path).is_file():
        reader.problem(key, f"{path} is not a file")
    return path


def bcrypt() -> Any:
    """The module bcrypt, or None: only who wants passwords needs it."""
    try:
        return importlib.import_module("bcrypt")
    except ImportError:
        return None
