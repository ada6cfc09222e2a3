"""What the exporter reads of a heartbeat, from a real one: lag, the block in progress, the culprit, the metrics."""

from __future__ import annotations

from pathlib import Path

from heartbeat.heartbeat_lab import Server, server, until, uvicorn
from llm_exporter.engines import Page
from llm_exporter.judge import LoopEvidence
from llm_exporter.witnesses.heartbeat import PATH, loop_evidence


def read(app: Server) -> LoopEvidence:
    answer = app.aside(PATH)
    found = loop_evidence(Page(status=answer.status, body=answer.body.decode()))
    assert found is not None
    return found


def test_the_exporter_understands_the_heartbeat(tmp_path: Path) -> None:
    with server(uvicorn(), tmp_path, LLM_HEARTBEAT_LIVE_AFTER="1500ms") as app:
        assert read(app).blocked == 0
        with app.blocked():
            until("the exporter sees the block", lambda: read(app).blocked > 2)
            said = read(app)
            assert said.lag >= 2
            assert said.culprit is not None
            assert said.culprit.startswith("make.<locals>.block (")
        until("the block is over", lambda: read(app).blocked == 0)
        assert read(app).lag > 2, "the lag of the last 30 s outlives the block, and must not be taken for one"
        metrics = app.metrics()
        assert {"llm_event_loop_lag_seconds", "llm_event_loop_blocked_seconds"} <= set(metrics)
