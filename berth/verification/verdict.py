"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, LiteralString

import psycopg

VIOLATIONS_SHOWN = 20

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass
class Verdict:
    """Whether a promise holds: how much was looked at, up to which version of the log (0: not asked), and up to
    twenty violations as sentences.
    """

    promise: str
    title: str
    checked: int = 0
    violations: list[str] = field(default_factory=list)
    more: bool = False
    seconds: float = 0.0
    checked_through: int = 0

    @property
    def kept(self) -> bool:
        """Whether no violation was found."""
        return not self.violations

    def scan(self, connection: Connection, violations: LiteralString, sentence: str, **parameters: object) -> None:
        """Run a query that answers one row per violation, and write each as `sentence.format(*row)`."""
        room = VIOLATIONS_SHOWN - len(self.violations)
        rows = connection.execute(violations, parameters).fetchmany(max(room, 0) + 1)
        self.more = self.more or len(rows) > room
        self.violations += [sentence.format(*row) for row in rows[:room]]

    def count(self, connection: Connection, query: LiteralString) -> None:
        """Add the single number that a query answers to what was looked at."""
        row = connection.execute(query).fetchone()
        self.checked += int(row[0]) if row else 0
