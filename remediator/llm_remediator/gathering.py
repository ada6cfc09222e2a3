"""Asks the outside for single facts; every refusal becomes part of the fact."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from llm_common.config import parse_duration
from llm_remediator.containers import Container, ContainerRuntime, Process, the_one
from llm_remediator.history import Pause
from llm_remediator.outcome import Outcome, Status
from llm_remediator.policy.proof import SAMPLES
from llm_remediator.ports import ActiveAlert, AlertmanagerClient, Clock
from llm_remediator.rules import Target
from llm_remediator.snapshot import Member, Witness

SAMPLE_PAUSE = 5.0
PAUSE_FILE_LASTS = 4 * 3600.0


async def resolve(runtime: ContainerRuntime, target: Target) -> tuple[Member, ...]:
    """Resolve every selector to exactly one container, by the configuration alone."""
    members = []
    for selector in target.selectors:
        found = await runtime.find(selector)
        if not found.ok:
            members.append(Member(selector, None, f"{runtime.host}: {found.detail or found.status}", "unreachable"))
            continue
        matches = found.get()
        match, why = the_one(matches, selector)
        if match is None:
            members.append(Member(selector, None, why, "ambiguous" if matches else "no_match"))
            continue
        box = await runtime.inspect(match.id)
        gone = "no_match" if box.status is Status.NOT_FOUND else "unreachable"
        fault = "" if box.ok else f"{match.name}: {box.detail or box.status}"
        members.append(Member(selector, box.value if box.ok else None, fault, "" if box.ok else gone))
    return tuple(members)


async def sample_processes(
    runtime: ContainerRuntime, clock: Clock, boxes: Sequence[Container]
) -> tuple[tuple[tuple[Process, ...], ...], str]:
    """Up to three samples some seconds apart, more than one only where a process looks unkillable; and a fault."""
    samples: list[tuple[Process, ...]] = []
    while len(samples) < SAMPLES:
        if samples:
            await clock.sleep(SAMPLE_PAUSE)
        sample: list[Process] = []
        for box in boxes:
            listed = await runtime.top(box.id)
            if not listed.ok:
                return tuple(samples), listed.detail or str(listed.status)
            sample.extend(listed.get())
        samples.append(tuple(sample))
        if not any(p.stat[:1] in ("D", "Z") for p in sample):
            break
    return tuple(samples), ""


async def ask_witnesses(alertmanagers: Sequence[AlertmanagerClient], target: str) -> tuple[Witness, ...]:
    """What every Alertmanager says about the target now."""
    answers = await asyncio.gather(*(am.alerts() for am in alertmanagers))
    return tuple(witness(target, am.url, answer) for am, answer in zip(alertmanagers, answers, strict=True))


def witness(target: str, url: str, answer: Outcome[tuple[ActiveAlert, ...]]) -> Witness:
    """One Alertmanager's word on one target."""
    if not answer.ok:
        return Witness(url, reachable=False, detail=answer.detail or str(answer.status))
    alerts = [a for a in answer.get() if a.target == target]
    suppressed = [s for a in alerts for s in (*a.silenced_by, *a.inhibited_by)]
    suppressed += [f"state {a.state}" for a in alerts if a.state == "suppressed" and not suppressed]
    return Witness(url, True, firing=sum(a.firing for a in alerts), suppressed_by=tuple(dict.fromkeys(suppressed)))


def read_pause_file(configured: str | None, now: float) -> tuple[Pause, ...]:
    """A file whose being there pauses everything: for its first line's duration (default 4h) from its mtime."""
    if configured is None:
        return ()
    path = Path(configured)
    try:
        changed = path.stat().st_mtime
        first = (path.read_text(encoding="utf-8", errors="replace").splitlines() or [""])[0].strip()
    except FileNotFoundError:
        return ()
    except OSError as error:
        return (Pause(None, now + 60.0, f"{path} cannot be read: {error.strerror}", "pause file"),)
    try:
        lasts = parse_duration(first) if first else PAUSE_FILE_LASTS
    except ValueError:
        lasts = PAUSE_FILE_LASTS
    return (Pause(None, changed + lasts, f"{path} is there", "pause file"),)
