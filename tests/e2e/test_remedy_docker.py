"""The whole remediator against real Docker: storms of webhooks, hands of others, restarts that go wrong."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from docker.types import Mount

from e2e.remedy_stage import Stage
from e2e.tiny_docker import Hands, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
Make = Callable[..., Stage]


@pytest.fixture
def make(client: Any, hands: Hands, tmp_path: Path) -> Iterator[Make]:
    made: list[Stage] = []

    def build(container: Any = None, **settings: Any) -> Stage:
        stage = Stage(tmp_path, client, container or hands.run(), **settings)
        made.append(stage)
        return stage

    yield build
    for stage in made:
        stage.close()


def listening(stage: Stage) -> None:
    until("it is ready", lambda: stage.post("/api/v1/alerts", stage.webhook()) == 202)


def test_fifty_duplicates_and_a_kill_make_one_restart(make: Make) -> None:
    stage = make(defaults={"cooldown": "5s"})
    stage.start()
    listening(stage)
    with ThreadPoolExecutor(50) as pool:
        first = [pool.submit(stage.post, "/api/v1/alerts", stage.webhook()) for _ in range(25)]
        time.sleep(0.1)
        stage.stop(kill=True)
        stage.start()
        listening(stage)
        codes = [f.result() for f in first]
        codes += pool.map(lambda _: stage.post("/api/v1/alerts", stage.webhook()), range(25))
    assert set(codes) <= {202, 0}
    stage.wait_closed()
    time.sleep(3)
    assert stage.starts() == 1
    assert stage.rows("SELECT COUNT(*) AS n FROM deliveries")[0]["n"] >= codes.count(202)


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(make: Make, hands: Hands) -> None:
    stage = make(hands.run("trap '' TERM; while :; do sleep 1; done"))
    stage.start()
    (attempt,) = stage.wait_closed()
    assert attempt["result"] == "verified"
    assert attempt["acted_at"] - attempt["acting_at"] >= 2
    assert stage.starts() == 1


def test_stop_that_succeeds_and_start_that_fails(make: Make, hands: Hands, tmp_path: Path) -> None:
    mount = tmp_path / "weights"
    mount.mkdir()
    stage = make(hands.run(mounts=[Mount(target="/tmp/weights", source=str(mount), type="bind")]))
    shutil.rmtree(mount)
    stage.start()
    (attempt,) = stage.wait_closed()
    assert attempt["result"] == "start_failed"
    assert "weights" in attempt["detail"], "Docker's own words are missing"
    until("one page", lambda: stage.notices)
    time.sleep(3)
    assert [n["event"] for n in stage.notices] == ["latched"]
    assert len(stage.rows("SELECT * FROM steps WHERE starting_at IS NOT NULL")) == 1
    assert stage.state()["Status"] == "exited"
    (view,) = stage.get("/api/v1/targets")["targets"]
    assert view["latched"]


@pytest.mark.parametrize("how", ["pause", "stop", "kill"])
def test_what_a_person_did_is_not_undone(make: Make, how: str) -> None:
    stage = make()
    stage.verdict = lambda _: "stuck"
    getattr(stage.container, how)()
    before = stage.state()["StartedAt"]
    stage.start()
    stage.wait_decision("container_paused" if how == "pause" else "container_exited")
    time.sleep(4)
    assert stage.state()["StartedAt"] == before
    assert stage.state()["Paused"] is (how == "pause")
    assert stage.attempts() == []
    if how == "pause":
        stage.container.unpause()


def test_a_restart_that_the_exporter_does_not_see_was_the_wrong_container(make: Make) -> None:
    stage = make(defaults={"verify_within": "6s", "cooldown": "8s"})
    stage.blind = True
    stage.recovers = False
    stage.start()
    (attempt,) = stage.wait_closed()
    assert attempt["result"] == "wrong_container"
    stage.wait_decision("latched")
    assert stage.starts() == 1
    until("one page", lambda: [n["event"] for n in stage.notices] == ["acted", "wrong_container"])


def test_one_that_never_recovers_latches_after_its_budget_and_pages_once(make: Make) -> None:
    stage = make(
        defaults={"cooldown": "1s", "cooldown_max": "2s", "budget": {"restarts": 2, "per": "1h"}, "verify_within": "3s"}
    )
    stage.recovers = False
    stage.start()
    stage.wait_decision("latched", 40)
    time.sleep(3)
    assert stage.starts() == 2
    assert [a["result"] for a in stage.attempts()] == ["failed", "failed"]
    assert [n["event"] for n in stage.notices].count("latched") == 1


def test_a_second_watchdog_is_noticed_and_left_the_field(make: Make) -> None:
    stage = make(defaults={"cooldown": "8s", "startup_grace": "0s"})
    stage.recovers = False
    stage.start()
    for _ in range(2):
        # Two looks: the exporter's state at the moment of the restart must be known.
        stage.wait_decision("cooldown")
        time.sleep(2.2)
        stage.container.restart(timeout=1)
    decision = stage.wait_decision("foreign_owner")
    assert "restarted it 2 times" in decision["text"]
    time.sleep(5)
    assert stage.attempts() == []
    assert [n["event"] for n in stage.notices] == ["foreign_owner"]
    causes = [r["cause"] for r in stage.rows("SELECT cause FROM starts ORDER BY started_at")]
    assert causes == ["deployment", "api", "api"]


def test_a_silence_set_after_the_alert_is_honoured(make: Make) -> None:
    stage = make()
    stage.start()
    listening(stage)
    stage.silenced = True
    stage.wait_decision("silenced")
    time.sleep(4)
    assert stage.starts() == 0
    stage.silenced = False
    stage.wait_closed()
    assert stage.starts() == 1


def test_a_corrupt_journal_means_observe_and_503(make: Make) -> None:
    stage = make()
    stage.journal.write_bytes(b"not a database at all, but long enough" * 200)
    stage.start()
    until("it refuses webhooks", lambda: stage.post("/api/v1/alerts", stage.webhook()) == 503)
    time.sleep(5)
    assert stage.starts() == 0
    assert stage.proofs == 0
    overview = stage.get("/api/v1/overview")
    assert (overview["mode"], overview["configured_mode"], overview["journal_writable"]) == ("observe", "act", False)
    assert "corrupt" in overview["mode_reason"]


def test_two_remediators_on_one_journal(make: Make) -> None:
    stage = make(defaults={"startup_grace": "1h"})
    stage.start()
    listening(stage)
    first, stage.process = stage.process, None
    stage.start()
    assert stage.wait_for_death(20) != 0
    assert "belongs to another llm-remediator" in (stage.folder / "remediator.log").read_text()
    stage.process = first


def test_observe_touches_nothing(make: Make) -> None:
    stage = make(mode="observe")
    stage.start()
    found = until("it would act", lambda: stage.rows("SELECT * FROM decisions WHERE verb = 'would_act'"))
    assert found[0]["reason"] == "proven"
    time.sleep(3)
    assert stage.starts() == 0
    assert stage.notices == []
    assert [a["result"] for a in stage.attempts()] == ["simulated"]


def test_a_group_is_restarted_in_order(make: Make, hands: Hands) -> None:
    head, tail = hands.run(), hands.run()
    group = [{"container": head.name}, {"container": tail.name}]
    stage = make(head, targets=[{"name": "engine", "docker": group}])
    stage.start()
    (attempt,) = stage.wait_closed()
    assert attempt["result"] == "verified"
    steps = stage.rows("SELECT * FROM steps ORDER BY ordinal")
    assert [s["name"] for s in steps] == [head.name, tail.name]
    assert steps[0]["acted_at"] < steps[1]["acting_at"]


def test_a_group_that_cannot_be_seen_whole_is_not_touched(make: Make, hands: Hands) -> None:
    head = hands.run()
    group = [{"container": head.name}, {"container": "spb-nobody-has-this-name"}]
    stage = make(head, targets=[{"name": "engine", "docker": group}])
    stage.start()
    stage.wait_decision("no_match")
    time.sleep(4)
    assert stage.starts() == 0


def test_a_docker_host_that_is_away_defers(make: Make) -> None:
    stage = make(docker={"hosts": {"local": "unix:///tmp/spb-no-such-socket"}})
    stage.start()
    decision = stage.wait_decision("unreachable")
    assert "local" in decision["text"]
    assert stage.get("/api/v1/overview")["docker_up"] == {"local": False}
