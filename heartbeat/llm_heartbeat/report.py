"""One answer of an endpoint, and how it is written. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OK, DEGRADED, FAILED = "ok", "degraded", "failed"
JSON_TYPE = "application/json; charset=utf-8"
TEXT_TYPE = "text/plain; charset=utf-8"

Value = float | int | str | bool | None
Detail = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Report:
    """`checks` is flat; `failed` has the machine-readable reasons.

    `details` has limit, unit and since of all that may fail, `reasons` has the words for what does, where they differ.
    """

    endpoint: str
    status: str
    code: int
    checks: dict[str, Value]
    failed: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()
    details: dict[str, Detail] = field(default_factory=dict)
    reason: str = ""
    reasons: Mapping[str, str] = field(default_factory=dict)
    culprit: dict[str, Any] | None = None
    changes: tuple[dict[str, Any], ...] = ()
    processes: tuple[dict[str, Any], ...] = ()

    @property
    def good(self) -> bool:
        """Whether the endpoint answers 200."""
        return self.code == 200

    def as_dict(self, details: bool = True) -> dict[str, Any]:
        """The JSON body. Without details it names no code of the application."""
        body: dict[str, Any] = {
            "status": self.status,
            "checks": self.checks,
            "failed": list(self.failed),
            "degraded": list(self.degraded),
            "reason": self.reason,
            "details": self.details,
        }
        if self.processes:
            body["processes"] = list(self.processes)
        if details and self.endpoint == "live":
            body["culprit"] = self.culprit
        if details:
            body["changes"] = list(self.changes)
        return body

    def as_json(self, details: bool = True) -> bytes:
        """Encoded body."""
        return (json.dumps(self.as_dict(details), separators=(", ", ": ")) + "\n").encode()

    def as_text(self) -> bytes:
        """Kubernetes' verbose form: a line for all that may fail, then the values, then the verdict."""
        lines = [self._line(name) for name in dict.fromkeys((*self.failed, *self.degraded, *self.details))]
        lines += [f"{name}: {value}" for name, value in self.checks.items() if value is not None]
        verdict = "passed" if self.good else "failed"
        return ("\n".join([*lines, f"{self.endpoint} check {verdict}"]) + "\n").encode()

    def _line(self, name: str) -> str:
        why = self.reasons.get(name) or self.reason
        if name in self.failed:
            return f"[-]{name} failed: {why}"
        return f"[!]{name} degraded: {why}" if name in self.degraded else f"[+]{name} ok"


def response(report: Report, query: str, details: bool = True) -> tuple[int, str, bytes]:
    """Status code, content type and body for a query string."""
    if any(part.partition("=")[0] == "verbose" for part in query.split("&")):
        return report.code, TEXT_TYPE, report.as_text()
    return report.code, JSON_TYPE, report.as_json(details)
