"""How a call to the outside ended. No answer, a refusal and nobody there are three things."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Status(StrEnum):
    """How a call to the outside ended. Only `OK` carries a value."""

    OK = "ok"
    NOT_FOUND = "not_found"
    """The other side answers and knows nothing by that name or id."""
    REFUSED = "refused"
    """It answered, and said no (4xx, 5xx, a proxy's 403, a command's exit status)."""
    TIMED_OUT = "timed_out"
    """Sent, no answer in time: it may or may not have happened. Inspect before you believe anything."""
    UNAVAILABLE = "unavailable"
    """Never sent or never reached: connection refused, DNS, TLS, permission, host marked unhealthy."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T_co]):
    """Result of one call. `detail` is a sentence for people whenever `status` is not `OK`."""

    status: Status
    value: T_co | None = None
    detail: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True if the call did what it says."""
        return self.status is Status.OK

    def get(self) -> T_co:
        """The value; `ValueError` if there is none (ask `ok` first)."""
        if self.status is not Status.OK or self.value is None:
            raise ValueError(f"no value: {self.status} {self.detail}")
        return self.value


def failed(status: Status, detail: str, seconds: float = 0.0) -> Outcome[Any]:
    """An outcome without a value."""
    return Outcome(status=status, value=None, detail=detail, seconds=seconds)
