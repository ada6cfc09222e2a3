"""The Docker daemon ends in the middle of our restart: the container is not left stopped, nor restarted twice."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.own_dockerd import OwnDockerd, own_dockerd
from e2e.remedy_stage import Stage
from e2e.tiny_docker import Hands, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
DEAF = "trap '' TERM; while :; do sleep 1; done"


@pytest.fixture
def dockerd() -> Iterator[OwnDockerd]:
    with own_dockerd() as mine:
        yield mine


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_daemon_that_ends_while_it_restarts_the_container(
    dockerd: OwnDockerd, tmp_path: Path, how: signal.Signals
) -> None:
    hands = Hands(dockerd.client())
    # With a policy, as engines have: a stop of the daemon between stop and start makes Docker forget it all the same.
    container = hands.run(DEAF, restart_policy={"Name": "unless-stopped"})
    hosts = {"hosts": {"own": f"unix://{dockerd.socket}"}}
    stage = Stage(tmp_path, hands.client, container, docker=hosts, defaults={"stop_timeout": "6s"})
    try:
        stage.start()
        until("the call is out", lambda: [a for a in stage.attempts() if a["phase"] == "acting"], 30)
        time.sleep(1)
        stage.away = True
        dockerd.send(how)
        until("the daemon ended", dockerd.ended, 30)
        time.sleep(2)
        assert stage.attempts()[0]["phase"] == "acting", "it must wait for the daemon to come back"
        dockerd.start()
        stage.away = False
        (attempt,) = stage.wait_closed(1, 90)
        state = stage.state()
        assert attempt["result"] == "verified", attempt["detail"]
        assert state["Running"]
        # The engine works, so nothing more is done: one start since ours, whoever made it.
        time.sleep(3)
        assert stage.state()["StartedAt"] == state["StartedAt"]
        assert len(stage.attempts()) == 1
    finally:
        stage.close()
        hands.clean()
        hands.client.close()
