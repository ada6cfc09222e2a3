"""Strict configuration: every problem at once, each with its key path and a remedy."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_common.config import ConfigError, Reader, format_duration, load_yaml, parse_duration, parse_yaml
from llm_common.config.forms import PATH, URL


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("0", 0),
        ("30s", 30),
        ("5m", 300),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("1d", 86400),
        ("1w2d", 777600),
        ("1y", 31536000),
    ],
)
def test_durations_are_read_as_prometheus_writes_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "5 m", "1.5h", "5m1h", "-5s", "5M", "s", "1s1s", "٣s", "1h30"])
def test_what_prometheus_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


def test_a_bare_number_gets_the_unit_suggested() -> None:
    with pytest.raises(ValueError, match="write 30s"):
        parse_duration("30")


@pytest.mark.parametrize("text", ["293y", "9" * 400 + "d"])
def test_a_duration_without_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"292 years|is not a duration"):
        parse_duration(text)


@given(st.integers(0, 10**9))
def test_a_formatted_duration_reads_back_the_same(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)


def test_duplicate_keys_are_errors_with_their_paths() -> None:
    text = "a: 1\ntargets:\n  - c: 1\n    c: 2\na: 3\nb: &x {k: 1}\nd: {<<: *x, k: 2}\n"
    expected = (
        "targets[0].c: is on line 4 and on line 3 already; remove one",
        "a: is on line 5 and on line 1 already; remove one",
    )
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "x.yml")
    assert caught.value.problems == tuple(f"x.yml: {problem}" for problem in expected)
    problems: list[str] = []
    document = parse_yaml(text, "x.yml", problems)
    assert tuple(problems) == expected
    assert document == {"a": 3, "targets": [{"c": 2}], "b": {"k": 1}, "d": {"k": 2}}


def test_an_anchor_that_leads_back_up_is_no_endless_walk() -> None:
    document = parse_yaml("a: &a {b: *a}", "x.yml")
    assert isinstance(document, dict)


def test_anchors_that_multiply_a_short_text_are_walked_once() -> None:
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    problems: list[str] = []
    parse_yaml("\n".join(["a0: &a0 [{x: 1, x: 2}]", *levels]), "x.yml", problems)
    assert problems == ["a0[0].x: is on line 1 and on line 1 already; remove one"]


@pytest.mark.parametrize(
    "text",
    ["a: [1", "a: b: c", "\t- x", "a: !!python/object:os.system {}", "--- a\n--- b\n", "2024-99-99: x", "a: !!timestamp x"],
)
def test_what_is_not_yaml_names_the_file(text: str) -> None:
    with pytest.raises(ConfigError, match=r"x\.yml"):
        parse_yaml(text, "x.yml")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "defaults: {interval: 2001-99-99}",
            "defaults.interval: '2001-99-99' on line 1 is no timestamp; quote it if it is text",
        ),
        ("targets:\n- url: !!timestamp x", "targets[0].url: 'x' on line 2 is no timestamp; quote it if it is text"),
        ("a: [1, !!int x]", "a[1]: 'x' on line 1 is no int; quote it if it is text"),
        ("a: !!bool maybe", "a: 'maybe' on line 1 is no bool; quote it if it is text"),
        ("2024-99-99: x", "2024-99-99: '2024-99-99' on line 1 is no timestamp; quote it if it is text"),
    ],
)
def test_a_value_that_is_not_what_it_looks_like_is_named_by_its_path(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_yaml(text, "x.yml", [])
    assert str(raised.value) == f"x.yml: {problem}"


def test_anchors_may_be_merged() -> None:
    assert parse_yaml("a: &a {b: 2}\nc: {<<: *a, d: 3}", "x.yml") == {"a": {"b": 2}, "c": {"b": 2, "d": 3}}


def test_a_missing_file_and_a_binary_one_are_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_yaml(tmp_path / "none.yml")
    (tmp_path / "binary.yml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_yaml(tmp_path / "binary.yml")


def test_all_problems_are_collected_with_their_paths() -> None:
    problems: list[str] = []
    reader = Reader(
        problems,
        "",
        {
            "targets": [{"url": 5, "interval": "5", "intervall": "5s"}, 7],
            "mode": "akt",
            "on": True,
            "share": 2,
            "retries": 1.5,
        },
    )
    for target in reader.items("targets"):
        target.text("name")
        target.text("url")
        target.duration("interval", 5.0)
        target.done()
    reader.text("mode", "observe", choices=("observe", "act"))
    reader.flag("on")
    reader.number("share", 0.2, low=0, high=1)
    reader.integer("retries", 1)
    reader.done()
    assert problems == [
        "targets[1]: must be a mapping of keys to values, not the number 7",
        "targets[0].name: is required",
        'targets[0].url: must be text, not the number 5; put it in quotes: "5"',
        "targets[0].interval: '5' is not a duration such as 30s, 5m or 1h30m; write 5s",
        "targets[0].intervall: unknown key; did you mean interval?",
        "targets[1].name: is required",
        "targets[1].url: is required",
        "mode: 'akt' is not one of observe, act; did you mean act?",
        "share: 2 is out of range; from 0 to 1",
        "retries: must be a whole number, not the number 1.5",
    ]


def test_a_text_of_the_wrong_form_is_told_the_form_in_words() -> None:
    reader = Reader([], "witness", {"url": "ftp://x", "path": "metrics"})
    reader.text("url", form=URL)
    reader.text("path", form=PATH)
    assert reader.problems == [
        "witness.url: 'ftp://x' must be a URL such as http://10.0.0.5:9090",
        "witness.path: 'metrics' must be a path such as /metrics",
    ]


def test_harmless_values_come_back_so_that_reading_goes_on() -> None:
    problems: list[str] = []
    reader = Reader(problems, "t", {"a": "x", "b": "y", "c": "z", "d": "q"})
    assert reader.duration("a", 5.0) == 5.0
    assert reader.number("b", 2.0) == 2.0
    assert reader.flag("c", True) is True
    assert reader.strings("d", []) == []
    assert reader.duration("none", None) is None
    assert reader.mapping("none").text("key", "default") == "default"
    assert len(problems) == 4


def test_a_bare_off_is_the_word_off_where_off_is_a_choice() -> None:
    reader = Reader([], "", parse_yaml("idle: off", "x"))
    assert reader.text("idle", "auto", choices=("auto", "off")) == "off"
    assert reader.problems == []


def test_secret_files_are_checked_and_their_content_never_shown(tmp_path: Path) -> None:
    good, empty, two = tmp_path / "good", tmp_path / "empty", tmp_path / "two"
    good.write_text(" s3cret \n")
    empty.write_text("\n")
    two.write_text("s3cret\nother\n")
    problems: list[str] = []
    reader = Reader(problems, "", {"a": str(good), "b": str(empty), "c": str(two), "d": str(tmp_path / "none")})
    assert reader.secret_file("a") == str(good)
    for key in "bcd":
        reader.secret_file(key)
    assert [problem.split(":")[0] for problem in problems] == ["b", "c", "d"]
    assert "s3cret" not in "".join(problems)


@pytest.mark.parametrize("text", ["", "\n", "# nothing but a comment\n", "---\n"])
def test_an_empty_document_is_nothing(text: str) -> None:
    assert parse_yaml(text, "f.yml") is None
