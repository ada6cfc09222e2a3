"""`llm-exporter` over HTTP. What it sends is checked: a missing or odd state is a refusal, never a guess."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from llm_remediator.config import STATES, Endpoint
from llm_remediator.http_client import JsonClient, checked
from llm_remediator.outcome import Outcome
from llm_remediator.verdicts import Proof, TargetReport

READ_TIMEOUT = 10.0
PROOF_TIMEOUT = 90.0
"""Two looks, a pause between them and a canary with its default 30 s, with room."""


class HttpExporter:
    """`verdicts.ExporterClient` over its `/api/v1`."""

    def __init__(self, endpoint: Endpoint, *, proof_timeout: float = PROOF_TIMEOUT) -> None:
        self._http = JsonClient(endpoint)
        self._proof_timeout = proof_timeout

    async def targets(self) -> Outcome[tuple[TargetReport, ...]]:
        """Every target it watches."""
        outcome = await self._http.call("GET", "/api/v1/targets", timeout=READ_TIMEOUT)
        return checked(
            outcome, "llm-exporter of this release", lambda raw: tuple(map(read_report, _mapping(raw)["targets"]))
        )

    async def target(self, name: str) -> Outcome[TargetReport]:
        """One target."""
        path = f"/api/v1/targets/{quote(name, safe='')}"
        outcome = await self._http.call("GET", path, timeout=READ_TIMEOUT)
        return checked(outcome, "llm-exporter of this release", lambda raw: read_report(_about(raw, "name", name)))

    async def proof(self, name: str) -> Outcome[Proof]:
        """Fresh looks, made for this call."""
        path = f"/api/v1/targets/{quote(name, safe='')}/proof"
        outcome = await self._http.call("POST", path, timeout=self._proof_timeout)
        return checked(outcome, "llm-exporter of this release", lambda raw: read_proof(_about(raw, "target", name)))

    async def close(self) -> None:
        """Close connections."""
        await self._http.close()


def read_report(raw: Mapping[str, Any]) -> TargetReport:
    """The exporter's JSON for one target; `ValueError`, `KeyError` or `TypeError` if it is none."""
    raw = _mapping(raw)
    return TargetReport(
        name=_text(raw, "name"),
        url=str(raw.get("url") or ""),
        state=_state(raw),
        sentence=str(raw.get("sentence") or ""),
        reason=str(raw.get("reason") or ""),
        since=_number(raw, "since"),
        progress=_progress(raw),
        held=_number(raw, "held"),
        up=raw.get("up") is True,
        ready=raw.get("ready") is True,
        maintenance=raw.get("maintenance") is True,
        last_observation=_number(raw, "last_observation"),
        process_started=_number(raw, "process_started"),
        incarnation=str(raw["incarnation"]) if raw.get("incarnation") is not None else None,
        restarts_seen=int(_number(raw, "restarts_seen") or 0),
        last_restart_seen=_number(raw, "last_restart_seen"),
        last_unserved=_number(raw, "last_unserved"),
        idle_verified_at=_number(raw, "idle_verified_at"),
        last_progress=_number(raw, "last_progress"),
        canary_available=raw["canary_available"] if isinstance(raw.get("canary_available"), bool) else None,
        kind=str(raw.get("kind") or ""),
        history=_history(raw.get("history")),
    )


def read_proof(raw: Mapping[str, Any]) -> Proof:
    """The exporter's JSON for a proof; `ValueError`, `KeyError` or `TypeError` if it is none."""
    observed = _number(raw, "observed_at")
    if observed is None:
        raise ValueError("observed_at is missing")
    evidence = raw.get("evidence") or []
    return Proof(
        target=_text(raw, "target"),
        state=_state(raw),
        sentence=str(raw.get("sentence") or ""),
        reason=str(raw.get("reason") or ""),
        observed_at=observed,
        lane=str(raw["lane"]) if raw.get("lane") is not None else None,
        progress=_progress(raw),
        held=_number(raw, "held"),
        flat_since=_number(raw, "flat_since"),
        process_started=_number(raw, "process_started"),
        incarnation=str(raw["incarnation"]) if raw.get("incarnation") is not None else None,
        bound_seconds=_number(raw, "bound_seconds"),
        bound_why=str(raw.get("bound_why") or ""),
        hardware=str(raw["hardware"]) if raw.get("hardware") else None,
        evidence=tuple(dict(e) for e in evidence[:1000]),
    )


def _mapping(raw: Any) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping):
        raise TypeError("it sends no JSON object")
    return raw


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw[key]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} is {value!r}")
    return value


def _state(raw: Mapping[str, Any]) -> str:
    state = _text(raw, "state")
    if state not in STATES:
        raise ValueError(f"state {state!r} is not one that this version knows")
    return state


def _number(raw: Mapping[str, Any], key: str) -> float | None:
    value = raw.get(key)
    if value is None or isinstance(value, bool):
        return None
    if not isinstance(value, int | float):
        raise TypeError(f"{key} is {value!r}")
    return float(value) if math.isfinite(value) else None


def _progress(raw: Mapping[str, Any]) -> int | None:
    value = raw.get("progress")
    if value is None:
        return None
    if value not in (0, 1):
        raise ValueError(f"progress is {value!r}")
    return int(value)


def _history(raw: Any) -> tuple[tuple[float, str], ...]:
    """States with their times, oldest first. An odd entry is left out: no proof rests on it."""
    if not isinstance(raw, list):
        return ()
    entries = [(entry.get("t"), entry.get("state")) for entry in raw if isinstance(entry, Mapping)]
    return tuple(
        sorted((float(t), s) for t, s in entries if isinstance(t, int | float) and math.isfinite(t) and s in STATES)
    )


def _about(raw: Mapping[str, Any], key: str, name: str) -> Mapping[str, Any]:
    if _mapping(raw)[key] != name:
        raise ValueError(f"asked for {name}, got {raw[key]!r}")
    return raw
