"""Every link of a page leads to a file of the project, and to a heading that it has."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OUTSIDE = ("https://keepachangelog.com/", "https://semver.org/")
"""What pages link to outside of the project."""
PAGES = sorted(
    {
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
        *(ROOT / folder / "README.md" for folder in ("deploy", "tests")),
        *(ROOT / "docs").rglob("*.md"),
    }
)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchor_of(heading: str) -> str:
    """The identifier that Markdown's `toc` extension gives to a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    kept = re.sub(r"[^\w\s-]", "", plain).strip().lower()
    return re.sub(r"[\s-]+", "-", kept)


@lru_cache
def anchors(page: Path) -> frozenset[str]:
    """Identifiers of a page's headings; a repeated one has a number."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+?)\s*$", FENCED.sub("", page.read_text()), re.MULTILINE):
        name = anchor = anchor_of(heading)
        number = 0
        while anchor in found:
            number += 1
            anchor = f"{name}_{number}"
        found.add(anchor)
    return frozenset(found)


def broken_links(page: Path) -> list[str]:
    """Targets that are no file of the project, or no heading of it."""
    broken = []
    for target in LINK.findall(FENCED.sub("", page.read_text())):
        if target.startswith(OUTSIDE):
            continue
        name, _, anchor = target.partition("#")
        file = page if not name else (page.parent / name).resolve()
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_its_heading(page: Path) -> None:
    assert broken_links(page) == []


def test_a_missing_file_and_a_missing_heading_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# One `code` name\n\n## Twice\n\n## Twice\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md#one-code-name) [b](other.md#twice_1) [c](other.md#none) [d](none.md) [e](#none) [f](https://a.example/)\n"
    )
    assert broken_links(page) == ["other.md#none", "none.md", "#none", "https://a.example/"]
