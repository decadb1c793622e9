"""The tables of docs/reference/fleet/guest-devices.md, for the tests that compare them with guests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "fleet" / "guest-devices.md"


@dataclass(frozen=True)
class Row:
    """One row: its first cell, and the code in the cells of `model`, `QEMU` and `sees`. `why` is the last cell."""

    name: str
    model: tuple[str, ...]
    qemu: tuple[str, ...]
    sees: tuple[str, ...]
    why: str


def rows(heading: str) -> list[Row]:
    """The rows of the first table below the heading."""
    return [
        Row(
            cells[header[0]].strip("`"), _code(cells.get("model", "")), _code(cells.get("QEMU", "")),
            _code(cells.get("sees", "")), cells[header[-1]],
        )
        for header, cells in _cells(heading)
    ]  # fmt: skip


def _cells(heading: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    section = PAGE.read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    header, _rule, *content = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    for row in content:
        yield header, dict(zip(header, row, strict=True))


def _code(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`([^`]+)`", cell))
