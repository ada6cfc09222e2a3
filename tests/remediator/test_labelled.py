"""Containers name themselves as targets by two labels, and nothing else makes them so."""

from __future__ import annotations

from typing import Any

import pytest

from llm_common.config import ConfigError
from llm_remediator.config import parse
from llm_remediator.containers import Container, Match, Selector
from llm_remediator.labelled import KEPT, OPT_IN, Labelled
from llm_remediator.outcome import Outcome, Status, failed
from llm_remediator.rules import Rules
from llm_remediator.settings import LabelledHost, TargetBook

SMALL: dict[str, Any] = {
    "exporter": "http://127.0.0.1:10140",
    "alertmanagers": ["http://127.0.0.1:9093"],
    "journal": "/tmp/j",
    "discovery": {"docker": [{}]},
}


class Host:
    """A Docker host of which only labels matter."""

    def __init__(self) -> None:
        self.boxes: dict[str, dict[str, str]] = {}
        self.up = True

    async def find(self, selector: Selector) -> Outcome[tuple[Match, ...]]:
        assert selector == Selector(label=OPT_IN), "only containers that opted in are looked at"
        if not self.up:
            return failed(Status.UNAVAILABLE, "down")
        key, value = OPT_IN.split("=")
        return Outcome(
            Status.OK, tuple(Match(i, i, "running") for i, labels in self.boxes.items() if labels.get(key) == value)
        )

    async def inspect(self, container_id: str) -> Outcome[Container]:
        box = Container(container_id, container_id, "running", True, False, False, 1.0, "x", labels=self.boxes[container_id])
        return Outcome(Status.OK, box)


class Now:
    def __init__(self) -> None:
        self.t = 0.0

    def monotonic(self) -> float:
        return self.t

    def wall(self) -> float:
        return self.t

    async def sleep(self, seconds: float) -> None:
        self.t += seconds


def both(name: str) -> dict[str, str]:
    return {"stuckproof.target": name, "stuckproof.restart": "allowed"}


def made(host: Host, book: TargetBook) -> tuple[Labelled, Now]:
    now = Now()
    hosts = (LabelledHost("local"),)
    return Labelled(book, hosts, {"local": host}, Rules(cooldown=1.0), now), now  # type: ignore[dict-item]


async def test_both_labels_make_a_target_with_the_limits_of_defaults() -> None:
    host, book = Host(), TargetBook(())
    host.boxes = {"a": both("chat"), "b": {"stuckproof.target": "other"}, "c": {"stuckproof.restart": "allowed"}}
    labelled, _ = made(host, book)
    await labelled.refresh()
    (target,) = book
    assert (target.name, target.rules.cooldown) == ("chat", 1.0)
    assert target.selectors == (Selector(label="stuckproof.target=chat"),)


async def test_true_stands_for_the_containers_own_name_as_it_does_in_the_exporter() -> None:
    host, book = Host(), TargetBook(())
    host.boxes = {"vllm-1": both("true"), "vllm-2": both("true")}
    labelled, _ = made(host, book)
    await labelled.refresh()
    assert {target.name: target.selectors for target in book} == {
        "vllm-1": (Selector(container="vllm-1"),),
        "vllm-2": (Selector(container="vllm-2"),),
    }


async def test_the_file_wins_over_a_label() -> None:
    config = parse(SMALL | {"targets": [{"name": "chat", "docker": {"container": "x"}}]})
    assert isinstance(config.targets, TargetBook)
    host = Host()
    host.boxes = {"a": both("chat"), "b": both("embed")}
    labelled, _ = made(host, config.targets)
    await labelled.refresh()
    assert [(t.name, str(t.selectors[0])) for t in config.targets] == [
        ("chat", "container x"),
        ("embed", "label stuckproof.target=embed"),
    ]
    assert config.target("embed") is not None, "whoever asks the configuration sees it"


async def test_a_host_that_is_down_and_a_deployment_forget_nothing() -> None:
    host, book = Host(), TargetBook(())
    host.boxes = {"a": both("chat")}
    labelled, now = made(host, book)
    await labelled.refresh()
    host.up = False
    now.t += 60
    await labelled.refresh()
    assert [t.name for t in book] == ["chat"]
    host.up, host.boxes = True, {}
    now.t += 60
    await labelled.refresh()
    assert [t.name for t in book] == ["chat"]
    now.t += KEPT
    await labelled.refresh()
    assert not list(book)


@pytest.mark.parametrize("name", ["", "../x", "a b", "x" * 300])
async def test_a_hostile_name_is_no_target(name: str) -> None:
    host, book = Host(), TargetBook(())
    host.boxes = {"a": both(name)}
    labelled, _ = made(host, book)
    await labelled.refresh()
    assert not list(book)


def test_configuration() -> None:
    config = parse(SMALL)
    assert len(config.targets) == 0
    assert config.labelled == (LabelledHost("local", 30.0),)
    with pytest.raises(ConfigError, match="targets: is empty"):
        parse({k: v for k, v in SMALL.items() if k != "discovery"})
    with pytest.raises(ConfigError, match=r"discovery\.docker"):
        parse(SMALL | {"discovery": {"docker": [{"host": "gpu9"}]}})
