"""A mutation of one text in one file that at least one test must catch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """Replace `old` by `new` in `file`; at least one of `tests` (pytest node ids) must then fail."""

    name: str
    noun: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


SURVIVORS: dict[str, str] = {}
"""Mutants that no test catches, by name, each with the reason why that is acceptable."""
