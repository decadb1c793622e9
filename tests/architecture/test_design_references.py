"""What code and documents cite of the design is in the project: sections, promises, traps (docs/explanation/design.md)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DESIGN = (ROOT / "docs" / "explanation" / "design.md").read_text()
SECTIONS = re.findall(r"^## (\d+)\. ", DESIGN, re.MULTILINE)
PROMISES = re.findall(r"^\| (P\d+) \|", DESIGN, re.MULTILINE)
TRAPS = set(re.findall(r"^### (\w+)$", DESIGN.partition("\n## Traps\n")[2], re.MULTILINE))

PERCENTILES = {"P50", "P95", "P99"}


def citing() -> dict[str, str]:
    """Every file of the project that may cite the design, by path."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.sql", "*.md", "*.toml", "Makefile"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    return {path: (ROOT / path).read_text() for path in listed if (ROOT / path).exists()}


def cited_sections(text: str) -> set[str]:
    """`DESIGN §4`, and each of `DESIGN §4 step 1, §5` and `DESIGN P3, §7`."""
    spans = re.findall(r"DESIGN\s((?:[§P]\d+(?: step \d+)?(?:, | and |-)?)+)", text)
    return {number for span in spans for number in re.findall(r"§(\d+)", span)}


def test_the_sections_and_promises_are_all_there() -> None:
    assert [str(number) for number in range(1, 14)] == SECTIONS
    assert [f"P{number}" for number in range(1, 15)] == PROMISES


def test_every_section_that_is_cited_is_there() -> None:
    files = citing()
    cited = {path: cited_sections(text) for path, text in files.items()}
    assert len([path for path in cited if cited[path]]) > 40
    assert {path: found - set(SECTIONS) for path, found in cited.items() if not found <= set(SECTIONS)} == {}


def test_every_promise_that_is_cited_is_there() -> None:
    cited = {path: set(re.findall(r"\bP\d{1,2}\b", text)) - PERCENTILES for path, text in citing().items()}
    assert {path: found - set(PROMISES) for path, found in cited.items() if not found <= set(PROMISES)} == {}


def test_every_kind_of_trap_that_is_cited_is_there() -> None:
    for path, text in citing().items():
        kinds = set(re.findall(r"TRAPS, ([A-Z]\w+)", text))
        assert kinds <= TRAPS, path
        for number in re.findall(r"TRAPS, failure (\d+)", text):
            assert 1 <= int(number) <= 30, path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(DESIGN §7)", {"7"}),
        ("DESIGN §4 step 1, §5).", {"4", "5"}),
        ("DESIGN P3, §7", {"7"}),
        ("see DESIGN §12.", {"12"}),
        ("of DESIGN\n§9", {"9"}),
        ("RFC 9110 §10.2.1", set()),
    ],
)
def test_citations_are_found(text: str, found: set[str]) -> None:
    assert cited_sections(text) == found
