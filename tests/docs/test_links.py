"""Every relative link of the README and the docs leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link) or link.startswith("#"):
            continue
        assert (page.parent / link.partition("#")[0]).exists(), f"{page.relative_to(ROOT)}: {link}"


def test_every_page_can_be_reached_from_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    seen, todo = set(), [index]
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        for link in re.findall(r"\]\(([^)\s:]+)\)", page.read_text()):
            target = (page.parent / link.partition("#")[0]).resolve()
            todo += sorted(target.glob("*.md")) if target.is_dir() else [target]
    lost = {str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md")} - {str(p.relative_to(ROOT)) for p in seen}
    assert not lost
