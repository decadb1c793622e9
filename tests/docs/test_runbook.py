"""The runbook has a section for each failure code, and each that asks for an action ends with what shows that it is solved."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.allocations.failures import FAILURES, Acts, Failure

PAGE = (Path(__file__).parents[2] / "docs/how-to/fleet/runbook-of-failures.md").read_text()
SECTIONS = dict(re.findall(r"^## ([a-z_]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def test_the_sections_are_the_codes_of_the_catalogue_in_its_order() -> None:
    assert list(SECTIONS) == [failure.code.value for failure in FAILURES.values()]


@pytest.mark.parametrize("failure", FAILURES.values(), ids=lambda failure: failure.code.value)
def test_a_section_says_what_to_do_and_what_shows_that_it_is_solved(failure: Failure) -> None:
    section = SECTIONS[failure.code.value]
    if failure.acts in (Acts.TENANT, Acts.OPERATOR):
        assert "\nSolved when: " in section
    else:
        assert section.startswith("\nNothing to do: ")
