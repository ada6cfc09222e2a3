from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from llm_remediator import page
from llm_remediator.markup import Markup, join, tag
from llm_remediator.page_style import STYLE
from llm_remediator.service import Explanation, GateView
from remediator.fake_service import NOW, OVERVIEW, decision, target

VOID = {"meta", "input", "br", "hr", "link", "img"}


class Balanced(HTMLParser):
    """Fails on a tag that is not closed where it was opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.links += [value or "" for name, value in attrs if name == "href"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text.append(data)


def read(html: str) -> Balanced:
    assert html.startswith("<!doctype html>")
    found = Balanced()
    found.feed(html)
    found.close()
    assert not found.open
    return found


EXPLAINED = Explanation("a", NOW, "defer", "cooldown", "not before 04:20", (GateView("mode", True, "act"),), {"held": 3})


def pages() -> list[str]:
    views = [
        target(
            "a", latched=True, paused_until=NOW + 5, next_possible_at=NOW + 5, last_restart=NOW - 5, wrong_container=True
        ),
        target("a&b/<c>", foreign_owner="x", warnings=("w",)),
    ]
    seen = replace(OVERVIEW, breaker_open=True, breaker_reason="3 of 4", paused_until=NOW + 60, trigger="exporter")
    shown = [page.front(seen, views, [decision()], NOW), page.front(OVERVIEW, [], [], NOW)]
    shown += [page.target(seen, view, EXPLAINED, [decision()], NOW) for view in views]
    shown += [page.confirm(action, name, "t") for action in ("pause", "resume") for name in ("a&b/<c>", None)]
    asked = target("a", awaiting_approval="restart awaits a person's approval", approval_request=7)
    return [*shown, page.confirm("rearm", "a", "t"), page.confirm("approve", "a", "t", asked)]


@pytest.mark.parametrize("html", pages())
def test_every_page_is_whole_html_readable_on_a_phone_without_scripts(html: str) -> None:
    found = read(html)
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in html
    assert '<html lang="en">' in html
    assert "<script" not in html
    assert not re.search(r"\son[a-z]+=", html)
    assert all(link.startswith("/") for link in found.links), "nothing is loaded from elsewhere"


def test_marks_have_words_beside_their_colour() -> None:
    gates = (GateView("mode", True, "m"), GateView("proof", False, "p"), GateView("silence", None, "s"))
    words = " ".join(read(page.target(OVERVIEW, target(), replace(EXPLAINED, gates=gates), [], NOW)).text)
    for said in ("passes: ", "refuses: ", "not asked: "):
        assert said in words


def test_odd_names_lead_where_they_should() -> None:
    html = page.front(OVERVIEW, [target("a&b/<c>")], [], NOW)
    assert 'href="/targets/a%26b%2F%3Cc%3E"' in html
    assert 'href="/confirm/pause?target=a%26b%2F%3Cc%3E"' in html
    assert 'action="/api/v1/targets/a%26b%2F%3Cc%3E/pause"' in page.confirm("pause", "a&b/<c>", "t")


def test_impossible_times_and_huge_evidence_do_not_break_it() -> None:
    huge = decision(at=1e30, evidence={"x": "y" * 100_000})
    html = page.front(OVERVIEW, [target(last_restart=float("inf"))], [huge], NOW)
    read(html)
    assert "at an impossible time" in html
    assert len(html) < 60_000


def test_markup_escapes_what_is_text_and_only_that() -> None:
    assert tag("p", "<b>", class_='"x"') == '<p class="&quot;x&quot;">&lt;b&gt;</p>'
    assert tag("p", tag("b", 1), None, join("&", Markup("<br>"))) == "<p><b>1</b>&amp;<br></p>"
    assert tag("input", required=True, checked=False, value=None) == "<input required>"


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    digits = "".join(d * 2 for d in digits) if len(digits) == 3 else digits
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_text_has_contrast_in_both_themes() -> None:
    """WCAG AA: 4.5 to 1."""
    light, dark = (dict(re.findall(r"--([a-z]+): (#[0-9a-f]+)", block)) for block in STYLE.split("@media")[:2])
    for theme in (light, dark):
        for ground in ("bg", "card"):
            for ink in ("fg", "dim", "good", "bad", "odd", "link"):
                pair = sorted((luminance(theme[ground]), luminance(theme[ink])))
                assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, (ground, ink, theme)
