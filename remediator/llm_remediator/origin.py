"""Who may change something through a browser: CSRF tokens, and which Host names are ours.

A person's browser reaches what a web page elsewhere cannot, our loopback port included; so it must not be
possible for that page to press our buttons, by a form of its own or by pointing its DNS name at 127.0.0.1.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

COOKIE = "stuckproof_csrf"
FIELD = "csrf"
_NEVER_A_FORM = frozenset({"application/json", "application/octet-stream", ""})
"""Types that another site's page cannot send without asking us first (CORS); "" carries Origin, checked before."""


class BrowserGuard:
    """Judges state-changing requests. `hosts`: names from `--web.external-url` besides the harmless ones."""

    def __init__(self, hosts: Iterable[str] = (), *, credentials: bool = False) -> None:
        self._hosts = frozenset(h.lower() for h in hosts)
        self._credentials = credentials
        self._key = secrets.token_bytes(32)

    def new_session(self) -> str:
        """A value for the cookie."""
        return secrets.token_urlsafe(24)

    def token(self, session: str) -> str:
        """The form field that belongs to a cookie."""
        return hmac.new(self._key, session.encode(), hashlib.sha256).hexdigest()

    def refusal(self, headers: Mapping[str, str], session: str, field: str | None) -> str:
        """Why this POST is not taken, or the empty string. `field`: the form's token, None if no form was sent."""
        site = headers.get("Sec-Fetch-Site", "")
        if site and site not in ("same-origin", "none"):
            return f"a request from another site ({site})"
        origin, host = headers.get("Origin", ""), headers.get("Host", "")
        from_browser = bool(origin or site) or field is not None
        if origin and _address(origin) != host.lower():
            return f"a request from another origin ({origin[:100]})"
        if from_browser and not self._known(host):
            return f"Host {host[:100]!r} is not a name of this server; give it with --web.external-url"
        if field is not None and not hmac.compare_digest(field.encode(), self.token(session).encode()):
            return "the form is too old, or not ours; load the page again"
        kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if field is None and kind not in _NEVER_A_FORM:
            return "send JSON (Content-Type: application/json), or use the page"
        return ""

    def _known(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        # Without a dot it is no public DNS name; with credentials a rebound name has none to send.
        if self._credentials or name in self._hosts or (name and "." not in name and ":" not in name):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _address(origin: str) -> str:
    """Host and port of an origin, empty for what is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
