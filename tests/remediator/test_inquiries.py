"""What the subcommands print from a journal that the real store wrote; asking a running one is in test_remediator_cli.py."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from llm_remediator import cli, inquiries, journal_attempts, journal_audit, journal_targets
from llm_remediator import config as configuration
from llm_remediator.history import Latch, Pause
from llm_remediator.journal_thread import JournalThread
from llm_remediator.snapshot import Decision, Verb

Print = Callable[..., tuple[int, str, str]]


@pytest.fixture
async def config(tmp_path: Path) -> Path:
    """A configuration, and a journal with a story in it."""
    now = time.time()

    def write(db: sqlite3.Connection) -> None:
        decided = Decision("a", now - 600, Verb.WOULD_ACT, "none", "proven", "stuck, proven", {"held": 3})
        number, _ = journal_audit.record_decision(db, decided, mode="observe")
        attempt = journal_attempts.open_attempt(db, "a", at=now - 600, simulated=True, decision_id=number)
        journal_attempts.update_attempt(db, attempt, phase="closed", result="simulated", aftermath="still stuck 20m later")
        journal_attempts.keep_diagnostics(db, attempt, {"logs x": "the last line"})
        for _ in range(3):
            skipped = Decision("a", now - 60, Verb.SKIP, "state", "state_busy", "the exporter says busy", {})
            journal_audit.record_decision(db, skipped, mode="observe")
        journal_targets.set_latch(db, "b", Latch(now, "budget", "3 starts did not mend it"), simulated=True)
        journal_targets.pause(db, Pause(None, now + 600, "upgrade", "kim"), at=now)

    journal = JournalThread(f"{tmp_path}/journal.sqlite")
    journal.start()
    await journal.run(write)
    journal.close()
    path = tmp_path / "remediator.yml"
    targets = [{"name": n, "docker": {"container": n}} for n in ("a", "b")]
    path.write_text(
        json.dumps({"exporter": "http://127.0.0.1:9", "journal": f"{tmp_path}/journal.sqlite", "targets": targets})
    )
    return path


@pytest.fixture
def printed(config: Path, capsys: pytest.CaptureFixture[str]) -> Print:
    def run(*words: str) -> tuple[int, str, str]:
        code = cli.main([words[0], f"--config.file={config}", *words[1:]])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_the_journal_reads_in_time_order(printed: Print) -> None:
    code, out, _ = printed("journal")
    first, second = out.splitlines()
    assert code == 0
    assert "a would_act proven: stuck, proven [still stuck 20m later]" in first
    assert "a skip state_busy: the exporter says busy (x3, last " in second
    assert json.loads(printed("journal", "--json")[1].splitlines()[0])["evidence"]["held"] == 3
    assert printed("journal", "--target=b")[1] == "no decisions in that time\n"
    assert printed("journal", "--since=5m")[1].count("\n") == 1
    assert printed("journal", "--since=soon")[0] == 2


def test_an_attempt_with_what_was_captured(printed: Print) -> None:
    code, out, _ = printed("journal", "--attempt=1")
    assert code == 0
    assert "--- logs x\nthe last line" in out
    code, _, err = printed("journal", "--attempt=99")
    assert code == 1
    assert "no attempt 99" in err


def test_the_report(printed: Print) -> None:
    out = printed("report", "--since=1h")[1]
    assert "0 restarts made, 1 would have been made" in out
    assert "next: still stuck 20m later" in out
    assert "refused: state_busy x3" in out
    found: list[dict[str, Any]] = json.loads(printed("report", "--json")[1])
    assert [r["target"] for r in found] == ["a", "b"]


def test_status_falls_back_to_the_journal(printed: Print) -> None:
    code, out, err = printed("status", "--url=http://127.0.0.1:9")
    assert code == 1
    assert "connection refused" in err
    assert "LATCHED: 3 starts did not mend it" in out
    assert out.count("paused until") == 2
    found = json.loads(printed("status", "--url=http://127.0.0.1:9", "--json")[1])
    assert found["targets"][1]["latched"] == "3 starts did not mend it"


def test_halves_of_credentials_are_refused(printed: Print) -> None:
    for half in ("--username=kim", "--key-file=/x"):
        code, _, err = printed("status", half)
        assert code == 2
        assert "belong together" in err


def test_every_unhappy_word_of_a_status() -> None:
    overview = {
        "mode": "observe",
        "mode_reason": "the journal is broken",
        "paused_until": 10.0,
        "pause_reason": "upgrade",
        "breaker_open": True,
        "breaker_reason": "3 of 4 changed",
        "exporter_up": False,
        "docker_up": {"gpu-1": False},
        "alertmanager_up": {"http://am": False},
        "warnings": ["old engine"],
    }
    view = {
        "name": "a",
        "state": "stuck",
        "sentence": "s",
        "next_action": "none",
        "next_gate": "latched",
        "budget_remaining": 0,
        "budget_total": 3,
        "container": "c",
        "host": "gpu-1",
        "alert": "firing",
        "phase": "latched",
        "latched": True,
        "latch_reason": "gave up",
        "paused_until": 20.0,
        "pause_reason": "",
        "warnings": ["w"],
    }
    text = inquiries.status_text(overview, {"targets": [view]}, as_json=False)
    for words in (
        "mode observe (the journal is broken)",
        "all paused until 1970-01-01 00:00:10 UTC upgrade",
        "breaker open: 3 of 4 changed",
        "host gpu-1 does not answer",
        "Alertmanager http://am does not answer",
        "the exporter does not answer",
        "warning: old engine",
        "LATCHED: gave up",
        "paused until 1970-01-01 00:00:20 UTC",
    ):
        assert words in text


def test_a_status_says_things_once() -> None:
    overview: dict[str, Any] = {
        "mode": "act", "mode_reason": "", "paused_until": None, "breaker_open": False, "exporter_up": True,
        "docker_up": {"local": True}, "alertmanager_up": {}, "warnings": [],
    }  # fmt: skip
    view = {
        "name": "a", "state": "busy", "sentence": "busy: 2 running",
        "next_action": "none: the exporter says busy: 2 running", "next_gate": "state",
        "budget_remaining": 3, "budget_total": 3,
        "container": "c", "host": "local", "alert": "none", "phase": "idle",
        "latched": False, "paused_until": None, "warnings": [],
    }  # fmt: skip
    lines = inquiries.status_text(overview, {"targets": [view]}, as_json=False).splitlines()
    assert lines[:4] == ["mode act", "", "a: busy: 2 running", "  next: none: the exporter says busy"]
    unknown = {**view, "state": "unknown", "sentence": "the exporter does not know a target named a"}
    lines = inquiries.status_text(overview, {"targets": [unknown]}, as_json=False).splitlines()
    forged = inquiries.status_text(overview, {"targets": [{**view, "container": "c\nb: busy"}]}, as_json=False)
    assert len(forged.splitlines()) == 6
    assert lines[2] == "a: unknown: the exporter does not know a target named a"


def test_gate_by_gate() -> None:
    gates = [{"name": n, "passed": p, "text": "t"} for n, p in (("mode", True), ("state", False), ("proof", None))]
    found = {
        "target": "a",
        "decision": "skip",
        "reason": "state",
        "text": "busy",
        "gates": gates,
        "evidence": {"captured": ["top"]},
    }
    text = inquiries.explanation_text(found, as_json=False)
    assert "  pass       mode: t\n" in text
    assert "  REFUSE     state: t\n" in text
    assert "  not asked  proof: t\n" in text
    assert "captured: top" in text
    assert text.endswith("nothing was restarted\n")


def test_where_a_running_one_is(tmp_path: Path) -> None:
    assert inquiries.place(None, None, None, None).url == "http://127.0.0.1:10141"
    (tmp_path / "t").write_text("x")
    web_config = tmp_path / "web.yml"
    web_config.write_text(f"bearer_token_file: {tmp_path}/t\n")
    found = inquiries.place("https://h:1/", str(web_config), None, None)
    assert (found.url, found.bearer_token_file) == ("https://h:1", f"{tmp_path}/t")


def test_config_shows_no_secret(config: Path, tmp_path: Path) -> None:
    settings = json.loads(config.read_text()) | {"notify": {"url": "https://chat.example.com/hooks/T0KEN"}}
    config.write_text(json.dumps(settings))
    text = cli.shown(configuration.load(config))
    assert "https://chat.example.com/…" in text
    assert "T0KEN" not in text
    assert json.loads(text)["targets"][0]["name"] == "a"


@pytest.mark.parametrize("answer", [{}, {"mode": 3}, {"targets": [1]}, {"gates": None}])
@pytest.mark.parametrize("command", ["status", "drill", "pause", "approve"])
async def test_who_answers_otherwise_is_no_remediator(
    config: Path, capsys: pytest.CaptureFixture[str], command: str, answer: dict[str, Any]
) -> None:
    async def say(_: web.Request) -> web.Response:
        return web.json_response(answer)

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", say)
    async with TestServer(app) as server:
        words = [command, *(["a"] if command != "status" else []), f"--config.file={config}", f"--url={server.make_url('')}"]
        code = await asyncio.to_thread(cli.main, words)
    assert code == 1
    assert "does not answer as llm-remediator of this release" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("--limit", "0"), ("--limit", "-1"), ("--attempt", "99999999999999999999"), ("--limit", "x")]
)
def test_numbers_out_of_range_are_usage_errors(
    printed: Print, words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        printed("journal", *words)
    assert "Traceback" not in capsys.readouterr().err


def test_a_mistyped_target_of_the_journal_is_named(printed: Print) -> None:
    assert "no target 'nope'" in printed("journal", "--target=nope")[1]
