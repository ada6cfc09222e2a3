"""Options: parsed, wrong ones reported and passed by, and the table in the docs is made from them."""

from dataclasses import fields
from pathlib import Path

import pytest

from llm_heartbeat import metrics, settings
from llm_heartbeat.settings import Settings, parse_listen, read

DOCS = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "heartbeat.md"


def test_every_option_can_be_set() -> None:
    environ = {
        "LLM_HEARTBEAT_LISTEN": "127.0.0.1:9109-9112",
        "LLM_HEARTBEAT_PREFIX": "/probe/",
        "LLM_HEARTBEAT_INTERVAL": "250ms",
        "LLM_HEARTBEAT_LIVE_AFTER": "1m",
        "LLM_HEARTBEAT_READY_QUEUE": "200",
        "LLM_HEARTBEAT_READY_KV": "0.97",
        "LLM_HEARTBEAT_EXIT_ON_FAILED_LOAD": "1",
        "LLM_HEARTBEAT_DETAILS": "off",
        "LLM_HEARTBEAT_HISTORY": "5",
        "LLM_HEARTBEAT_HOLD": "  ",
        "PATH": "/bin",
    }
    found, problems = read(environ)
    assert problems == ()
    assert found == Settings(
        listen="127.0.0.1:9109-9112",
        prefix="/probe",
        interval=0.25,
        live_after=60.0,
        ready_queue=200.0,
        ready_kv=0.97,
        exit_on_failed_load=True,
        details=False,
        history=5,
    )


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("LIVE_AFTER", "soon", "not a duration"),
        ("READY_KV", "97", "ratio lies between 0 and 1"),
        ("READY_QUEUE", "-1", "out of range"),
        ("READY_QUEUE", "many", "not a number"),
        ("READY_GPU", "nan", "out of range"),
        ("VLLM_STEPS", "maybe", "neither 1 nor 0"),
        ("LISTEN", "9109", "write 127.0.0.1:9109"),
        ("LISTEN", "127.0.0.1:9-8", "no valid port"),
        ("PREFIX", "healthz", "does not begin with /"),
        ("INTERVAL", "0s", "is below 1ms"),
        ("LIVE_AFTER", "0", "is below 100ms"),
        ("POLL", "0s", "is below 10ms"),
        ("DEPENDENCY_EVERY", "1ms", "is below 10ms"),
        ("LIFE_AFTER", "3s", "no such option"),
    ],
)
def test_a_wrong_value_is_a_problem_with_its_name_and_the_default_stays(variable: str, value: str, says: str) -> None:
    found, problems = read({f"LLM_HEARTBEAT_{variable}": value})
    assert found == Settings()
    assert len(problems) == 1
    assert problems[0].startswith(f"LLM_HEARTBEAT_{variable}: ")
    assert says in problems[0]


def test_all_problems_at_once() -> None:
    assert len(read({"LLM_HEARTBEAT_HOLD": "x", "LLM_HEARTBEAT_CLEAR": "2", "LLM_HEARTBEAT_POLL": "y"})[1]) == 3


@pytest.mark.parametrize(
    ("text", "host", "first", "last"),
    [
        (":9109", "", 9109, 9109),
        ("0.0.0.0:1", "0.0.0.0", 1, 1),
        ("[::1]:9109-9116", "::1", 9109, 9116),
    ],
)
def test_listen_addresses(text: str, host: str, first: int, last: int) -> None:
    assert parse_listen(text) == (host, range(first, last + 1))


def test_the_table_in_the_docs_is_made_from_the_code() -> None:
    assert settings.table() in DOCS.read_text(), "docs/how-to/heartbeat.md: paste llm_heartbeat.settings.table() anew"


def test_the_metrics_in_the_docs_are_all_there_are() -> None:
    assert metrics.table() in DOCS.read_text(), "docs/how-to/heartbeat.md: paste llm_heartbeat.metrics.table() anew"


def test_every_default_is_allowed_and_every_option_documented() -> None:
    for option in fields(Settings):
        assert settings.variable(option).startswith("LLM_HEARTBEAT_")
        assert option.metadata["doc"].rstrip().endswith(".")
        if option.metadata["kind"] == "duration":
            assert option.default >= option.metadata["least"]
