"""Eternal tasks whose death is seen, and log lines that machines can read."""

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest

from llm_common import logs
from llm_common.guard import Guard


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def _raises() -> None:
    raise RuntimeError("boom")


async def _returns() -> None:
    return


async def test_a_task_that_dies_is_logged_counted_and_makes_the_guard_unhealthy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guard = Guard()
    guard.spawn("monitor:a", _for_ever)
    assert guard.healthy
    await asyncio.wait([guard.spawn("monitor:b", _raises), guard.spawn("reload", _returns)])
    await asyncio.sleep(0)
    assert not guard.healthy
    assert guard.deaths == {"monitor": 1, "reload": 1}
    assert "boom" in caplog.text
    await guard.stop()


async def test_a_cancelled_task_did_not_die_and_stop_leaves_none() -> None:
    guard = Guard()
    task = guard.spawn("monitor:a", _for_ever)
    guard.spawn("monitor:b", _for_ever)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    await guard.stop()
    assert guard.healthy
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.fixture
def _root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.mark.usefixtures("_root_logger")
def test_json_lines_carry_the_extra_fields(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup("info", "json")
    logging.getLogger("llm.x").info("hello %s", "you", extra={"target": 'a"b'})
    line = json.loads(capsys.readouterr().err)
    assert (line["msg"], line["target"], line["level"]) == ("hello you", 'a"b', "info")


@pytest.mark.usefixtures("_root_logger")
def test_a_log_line_stays_one_line_whatever_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup("info", "logfmt")
    logging.getLogger("llm.x").info("a\nlevel=error b", extra={"target": "x y"})
    logging.getLogger("llm.x").debug("not shown")
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert r'msg="a\nlevel=error b"' in err
    assert 'target="x y"' in err
