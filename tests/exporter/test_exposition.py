"""The reader takes what engines, routers and collectors really write, and what they write when they are broken."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from llm_exporter.exposition import LONGEST_LINE, PIECE, Sample, read, read_line

LINES = [
    ("a 1", ("a", {}, 1.0)),
    ("a 1.5e+06", ("a", {}, 1.5e6)),
    ("a 1e3 1700000000000", ("a", {}, 1000.0)),
    ("a -4", ("a", {}, -4.0)),
    ("a .5", ("a", {}, 0.5)),
    ("vllm:x_y 2", ("vllm:x_y", {}, 2.0)),
    ('a{b="c"} 1', ("a", {"b": "c"}, 1.0)),
    ('a{b="c",} 1', ("a", {"b": "c"}, 1.0)),
    ('a{ b = "c" , d = "e" } 1', ("a", {"b": "c", "d": "e"}, 1.0)),
    ('a {b="c"} 1', ("a", {"b": "c"}, 1.0)),
    ("a{} 1", ("a", {}, 1.0)),
    ('a{b="x} y, z"} 1', ("a", {"b": "x} y, z"}, 1.0)),
    (
        r'a{b="say \"hi\"",c="back\\slash",d="new\nline"} 1',
        ("a", {"b": 'say "hi"', "c": "back\\slash", "d": "new\nline"}, 1.0),
    ),
    ('a{b="ü"} 1', ("a", {"b": "ü"}, 1.0)),
    ('a_bucket{le="+Inf"} 17 # {trace_id="x"} 0.7', ("a_bucket", {"le": "+Inf"}, 17.0)),
    ("a_created 1.7960038e+09", ("a_created", {}, 1.7960038e9)),
]


@pytest.mark.parametrize(("line", "expected"), LINES, ids=[line for line, _ in LINES])
def test_lines_that_are_read(line: str, expected: tuple[str, dict[str, str], float]) -> None:
    assert read_line(line) == Sample(*expected)


BAD = [
    "a",
    "a b",
    "a 12# TYPE x counter",
    'a{b="c" 1',
    'a{b="c"}',
    "a{b=c} 1",
    'a{b="c"} 1 2 3',
    "1a 2",
    "a 1_000",
    "a 0x1",
    "a 1,5",
    "{} 1",
]


@pytest.mark.parametrize("line", BAD)
def test_lines_that_are_skipped_and_hide_no_other(line: str) -> None:
    samples = read(f"good 1\n{line}\nalso_good 2\n")
    assert read_line(line) is None
    assert samples.total("good") == 1
    assert samples.total("also_good") == 2


@pytest.mark.parametrize("value", ["NaN", "nan", "-nan", "+Inf", "-Inf", "Inf"])
def test_what_is_no_number_is_absent(value: str) -> None:
    samples = read(f"a {value}\nb 1\n")
    assert not samples.has("a")
    assert samples.total("b") == 1


def test_colons_and_underscores_are_the_same_series() -> None:
    assert read("vllm:num_requests_running 3\n").total("vllm_num_requests_running") == 3
    assert read("vllm_num_requests_running 3\n").total("vllm:num_requests_running") == 3
    assert read("vllm_num_requests_running 3\n", ["vllm:num_requests_running"]).total("vllm:num_requests_running") == 3


def test_a_series_is_not_mistaken_for_a_longer_name() -> None:
    samples = read("x_total_created 9\nx_total 1\nx_totals 7\n", ["x_total"])
    assert samples.total("x_total") == 1
    assert list(samples.names()) == ["x_total"]


@pytest.mark.parametrize(
    "body",
    [
        "a 1\nb 2",
        "a 1\r\nb 2\r\n",
        "\n\n# HELP a x\na 1\n\n# EOF\nb 2\n",
        "﻿a 1\nb 2\n",
        json.dumps("# HELP a x\na 1\nb 2\n"),
    ],
    ids=["no final newline", "CRLF", "blank lines and EOF", "byte order mark", "JSON string"],
)
def test_pages_in_odd_wrappings(body: str) -> None:
    for names in (None, ["a", "b"]):
        samples = read(body, names)
        assert (samples.total("a"), samples.total("b")) == (1, 2)


def test_reading_some_series_is_reading_all_and_choosing() -> None:
    body = 'a{x="1"} 1\nb 2\na{x="2"} 3\n'
    whole, some = read(body), read(body, ["a"])
    assert some.get("a") == whole.get("a")
    assert not some.has("b")


names = st.from_regex(r"[a-z_:][a-z0-9_:]{0,8}", fullmatch=True)
labels = st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True), st.text(max_size=6), max_size=3)


@given(names, labels, st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_it_agrees_with_prometheus_clients_parser(name: str, given_labels: dict[str, str], value: float) -> None:
    def escaped(text: str) -> str:
        return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

    inner = ",".join(f'{k}="{escaped(v)}"' for k, v in given_labels.items())
    line = f"{name}{{{inner}}} {value!r}"
    assume(not any(char in line for char in "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"))  # their reader ends a line there
    (family,) = text_string_to_metric_families(line + "\n")
    theirs = family.samples[0]
    assert read_line(line) == Sample(theirs.name, dict(theirs.labels), theirs.value)


@given(st.text(max_size=300))
def test_no_text_crashes_it(text: str) -> None:
    read(text)
    read(text, ["a", "vllm:num_requests_running"])


def test_a_line_of_megabytes_is_no_sample_and_hides_no_other() -> None:
    label = "x" * LONGEST_LINE
    assert read(f'a{{b="{label}"}} 1\na 2\n').get("a") == (Sample("a", {}, 2.0),)


def test_a_page_of_many_pieces_is_read_whole() -> None:
    body = "".join(f"a_{n % 7} {n}\n" for n in range(PIECE // 3)) + "last 1"
    assert len(body) > 2 * PIECE
    seen = read(body)
    assert sum(len(seen.get(f"a_{n}")) for n in range(7)) == PIECE // 3
    assert seen.total("last") == 1
    assert read(body, ("a_3",)).get("a_3") == seen.get("a_3")
