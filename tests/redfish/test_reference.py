"""The page of the Redfish client lists every error, quirk and deadline."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from node_agent.redfish.contract import Deadlines
from node_agent.redfish.problems import PROBLEMS
from node_agent.redfish.quirks import QUIRKS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metal" / "redfish.md"


def rows(heading: str) -> list[str]:
    """First cells, in backticks, of the table under a heading."""
    section = PAGE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


def test_the_page_lists_every_error_quirk_and_deadline() -> None:
    assert rows("Errors") == [problem.code for problem in PROBLEMS]
    assert rows("Quirks") == [quirk.name for quirk in QUIRKS]
    assert rows("Deadlines") == [field.name for field in dataclasses.fields(Deadlines)]


def test_the_page_states_the_defaults_of_the_deadlines() -> None:
    text = PAGE.read_text()
    wrong = [f.name for f in dataclasses.fields(Deadlines) if f"| `{f.name}` | {f.default:,} |" not in text]
    assert wrong == []
