"""Each complaint of the comparison of bare metal names tests that exist, and `make test` runs them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/explanation/comparison-metal.md"
COMPLAINTS = [line for line in PAGE.read_text().partition("## Complaints")[2].splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("complaint", COMPLAINTS, ids=lambda line: line.split("|")[2].strip())
def test_a_complaint_names_where_it_is_from_and_tests_that_exist(complaint: str) -> None:
    _, _, source, _, tests, _ = complaint.split("|")
    assert re.search(r"[a-z_-]+ \d+", source)
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tests)
    assert named
    for path, name in named:
        content = (ROOT / path).read_text()
        assert re.search(rf"^(async )?def {name}\(", content, re.MULTILINE), f"{path}::{name}"
        decorators = content.partition(f"def {name}(")[0].rpartition("\n\n\n")[2].splitlines()
        assert "@pytest.mark.full" not in decorators, "make test runs it"


def test_there_are_complaints_of_each_system() -> None:
    sources = " ".join(line.split("|")[2] for line in COMPLAINTS)
    for system in ("baremetal-operator", "infra-controller", "maas", "tink", "rufio"):
        assert system in sources
