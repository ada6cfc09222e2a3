"""The pages for people: a table of all targets, and one page per target. Plain HTML, no script, everything escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from urllib.parse import quote

from llm_common.durations import format_duration
from llm_exporter import __version__
from llm_exporter.judge import LaneVerdict, State
from llm_exporter.judge.words import reading
from llm_exporter.page_style import STYLE
from llm_exporter.snapshot import SHOWN_FIRST, Snapshot

REFRESH = 10


def fleet(snapshots: Sequence[Snapshot], now: float, prefix: str, *, hold: bool = False) -> str:
    """All targets, the worst first. `hold`: the page does not renew itself."""
    ordered = sorted(snapshots, key=lambda snapshot: (SHOWN_FIRST.index(snapshot.verdict.state), snapshot.name))
    counts = [
        f"<li>{_badge(state)} {count}</li>"
        for state in SHOWN_FIRST
        if (count := sum(1 for snapshot in snapshots if snapshot.verdict.state is state))
    ]
    rows = "".join(_row(snapshot, now, prefix) for snapshot in ordered)
    body = f"""<h1>LLM targets</h1>
<ul class="counts">{"".join(counts)}</ul>
<div class="wide" role="region" aria-label="Targets" tabindex="0"><table>
<thead><tr><th scope="col">Target</th><th scope="col">State</th><th scope="col">Since</th><th scope="col">Verdict</th>
<th scope="col">Looked at</th></tr></thead>
<tbody>{rows or '<tr><td colspan="5">No targets are watched.</td></tr>'}</tbody></table></div>
<nav><a href="{prefix}/metrics">metrics</a> <a href="{prefix}/api/v1/targets">JSON</a>
<a href="{prefix}/config">configuration</a></nav>"""
    return _page("LLM targets", body, now, f"{prefix}/", hold)


def _row(snapshot: Snapshot, now: float, prefix: str) -> str:
    maintenance = " <small>(maintenance)</small>" if snapshot.target.options.maintenance else ""
    cells = [
        ("State", _badge(snapshot.verdict.state)),
        ("Since", _ago(snapshot.since, now)),
        ("Verdict", escape(snapshot.verdict.reason)),
        ("Looked at", _ago(snapshot.looked_at, now)),
    ]
    return (
        f'<tr><th scope="row"><a href="{_link(snapshot.name, prefix)}">{escape(snapshot.name)}</a>{maintenance}<br>'
        f"<small>{escape(_kind(snapshot))}</small></th>{_cells(cells)}</tr>"
    )


def target(snapshot: Snapshot, now: float, prefix: str, *, hold: bool = False) -> str:
    """One target with everything that its verdict rests on. `hold`: the page does not renew itself."""
    verdict = snapshot.verdict
    name = escape(snapshot.name)
    facts = [
        ("Address", snapshot.target.url),
        ("Engine", _kind(snapshot)),
        ("Model", snapshot.model or "not known"),
        ("In this state since", _at(snapshot.since, now)),
        ("Last look", _ago(snapshot.looked_at, now) + (f", took {snapshot.seconds:.2f} s" if snapshot.looked_at else "")),
        ("Process started", _at(snapshot.started_at, now) if snapshot.started_at is not None else "not known"),
        ("Restarts seen", f"{snapshot.restarts}, last {_ago(snapshot.restarted_at, now)}" if snapshot.restarts else "none"),
        ("The engine's own /health", str(snapshot.native_status) if snapshot.native_status else "no answer"),
        ("What would change the verdict", verdict.would_change or "any evidence that says otherwise"),
        *((f"Label {key}", value) for key, value in sorted(snapshot.target.labels.items())),
    ]
    if verdict.hardware is not None:
        facts.insert(0, ("Hardware", f"{verdict.hardware}; a restart would not help"))
    if snapshot.loop_lag is not None:
        facts.append(("Event loop lag", f"{snapshot.loop_lag:.3f} s"))
    if snapshot.missing:
        facts.append(("Missing series", ", ".join(snapshot.missing)))
    body = f"""<p><a href="{prefix}/">All targets</a></p><h1>{name}</h1>
<p class="verdict">{_badge(verdict.state)} {escape(verdict.reason)}</p>
<dl>{"".join(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in facts)}</dl>
{"".join(_lane(snapshot, lane, now, len(verdict.lanes)) for lane in verdict.lanes)}
{_timeline(snapshot, now)}
{_canaries(snapshot, now)}
<nav><a href="{_link(snapshot.name, prefix)}/raw">its metrics page now</a>
<a href="{prefix}/api/v1/targets/{quote(snapshot.name, safe="")}">JSON</a></nav>"""
    return _page(f"{snapshot.name}: {verdict.state.value}", body, now, _link(snapshot.name, prefix), hold)


def not_found(name: str, prefix: str) -> str:
    """The page for a target that is not watched."""
    return _page(
        "No such target", f'<h1>No such target</h1><p>{escape(name)} is not watched. <a href="{prefix}/">All</a></p>'
    )


def _lane(snapshot: Snapshot, lane: LaneVerdict, now: float, lanes: int) -> str:
    title = "Evidence" if lanes == 1 else f"Lane {lane.lane}"
    bound = lane.bound
    said = [f"{_badge(lane.state)} {escape(lane.reason)}"] if lanes > 1 else []
    if bound is not None:
        flat = f"flat for {_span(lane.stalled_seconds)}" if lane.stalled_seconds else "not flat"
        said.append(f"{escape(flat)}; the bound is {_span(bound.seconds)}: {escape(bound.why)}.")
        said.append(_meter(lane.stalled_seconds, bound.seconds, title))
    if lane.would_change and lanes > 1:
        said.append(f"Would change it: {escape(lane.would_change)}.")
    rows = (
        (item.series, reading(item.value), _ago(snapshot.unix(item.moved_at), now, _unmoved(item.series)))
        for item in lane.evidence
    )
    return (
        f"<h2>{escape(title)}</h2>"
        + "".join(f"<p>{line}</p>" for line in said)
        + _table(title, ("Series", "Last value", "Moved"), rows, "No series to show.")
    )


def _unmoved(series: str) -> str:
    return "proves nothing" if series in ("running", "waiting", "deferred") else "not seen to move"


def _meter(value: float, bound: float, what: str) -> str:
    share = min(1.0, value / bound) if bound > 0 else 0.0
    return (
        f'<meter min="0" max="1" high="0.5" low="0.1" optimum="0" value="{share:.3f}" '
        f'aria-label="{escape(what)}: flat time as share of the bound">{share:.0%}</meter>'
    )


def _timeline(snapshot: Snapshot, now: float) -> str:
    rows = (
        (_at(change.unix, now), _badge(change.state), escape(change.reason)) for change in reversed(snapshot.timeline[-30:])
    )
    return "<h2>States</h2>" + _table("States", ("From", "State", "Why"), rows, "None yet.", safe=True)


def _canaries(snapshot: Snapshot, now: float) -> str:
    rows = (
        (
            _at(sent.unix, now),
            sent.kind + (f", lane {sent.lane}" if sent.lane is not None else ""),
            " ".join(filter(None, (sent.result, str(sent.status or ""), sent.words))),
            f"{sent.seconds:.2f} s",
        )
        for sent in reversed(snapshot.canary_log)
    )
    return "<h2>Requests of ours</h2>" + _table(
        "Requests of ours", ("Sent", "Why", "Result", "Took"), rows, "No request was sent."
    )


def _table(name: str, heads: Sequence[str], rows: Iterable[Sequence[str]], empty: str, *, safe: bool = False) -> str:
    names = [escape(text) for text in heads]
    body = "".join(f"<tr>{_cells(zip(names, row if safe else map(escape, row), strict=True))}</tr>" for row in rows)
    if not body:
        return f"<p>{escape(empty)}</p>"
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    return (
        f'<div class="wide" role="region" aria-label="{escape(name)}" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cells(cells: Iterable[tuple[str, str]]) -> str:
    """Each cell with its column's name, for a phone, which shows them one below the other. Both are escaped already."""
    return "".join(f'<td data-head="{name}">{cell}</td>' for name, cell in cells)


def _kind(snapshot: Snapshot) -> str:
    if not snapshot.kind:
        return "engine not recognised yet"
    return f"{snapshot.kind} {snapshot.version or ''}".strip() + (" (prefill is not seen)" if snapshot.prefill_blind else "")


def _badge(state: State) -> str:
    return f'<strong class="state {state.value}">{state.value}</strong>'


def _link(name: str, prefix: str) -> str:
    return f"{prefix}/targets/{quote(name, safe='')}"


def _span(seconds: float) -> str:
    rounded = round(seconds) if seconds >= 1 else round(seconds, 1)
    text = format_duration(rounded)
    return text if len(text) < 8 else format_duration(round(seconds / 60) * 60)


def _ago(unix: float | None, now: float, never: str = "never") -> str:
    if unix is None:
        return never
    seconds = now - unix
    return "now" if seconds < 1 else f"{_span(seconds)} ago"


def _at(unix: float, now: float) -> str:
    """The time as logs have it, and how long ago that is."""
    moment = datetime.fromtimestamp(unix, UTC)
    return f"{moment:{'%H:%M:%S' if now - unix < 43_200 else '%m-%d %H:%M:%S'}} UTC, {_ago(unix, now)}"


def _page(title: str, body: str, now: float = 0.0, path: str = "", hold: bool = True) -> str:
    """The frame. A page that renews itself can be held still: a reader's place, or a screen reader's, is lost otherwise."""
    renew = "" if hold else f'<meta http-equiv="refresh" content="{REFRESH}">'
    link = f'held still; <a href="{path}">renew it</a>' if hold else f'<a href="{path}?hold">hold this page still</a>'
    said = link if hold else f"renewed every {REFRESH} s; {link}"
    foot = f"; as of {datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M:%S} UTC; {said}" if path else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">{renew}
<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"><style>{STYLE}</style></head>
<body><main>{body}</main><footer>llm-exporter {__version__}{foot}</footer></body></html>
"""
