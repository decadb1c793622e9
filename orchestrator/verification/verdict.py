"""What a check found, and the bounds by which it judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, LiteralString

import psycopg
from psycopg.sql import SQL, Composable

VIOLATIONS_SHOWN = 20
_BOUNDED = SQL("select found.*, count(*) over () from ({rows}) found limit %(shown)s")

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the database does not tell about the deployment, in seconds.

    `operation_retention_seconds`: how long answers are kept. `outbox_seconds`: how long an event may wait for its
    version. `overdue_seconds`: how far past its deadline a wait may be before it counts as forgotten; the rescuer comes
    after its grace and one round. `retirement_seconds`: how long an answer may outlive its time.
    """

    operation_retention_seconds: float = 86_400.0
    outbox_seconds: float = 60.0
    overdue_seconds: float = 120.0
    retirement_seconds: float = 3_600.0


@dataclass
class Verdict:
    """Whether a promise holds: how much was looked at, up to which version of the log (0: not asked), up to twenty
    violations as sentences, how many `more` there are, and in `note` what was counted, if that says something.
    """

    promise: str
    title: str
    checked: int = 0
    violations: list[str] = field(default_factory=list)
    more: int = 0
    seconds: float = 0.0
    checked_through: int = 0
    note: str = ""

    @property
    def kept(self) -> bool:
        """Whether no violation was found."""
        return not self.violations

    def scan(
        self, connection: Connection, violations: LiteralString | Composable, sentence: str, **parameters: object
    ) -> None:
        """Run a query that answers one row per violation, and write each as `sentence.format(*row)`.

        The server counts what is beyond the twentieth, so a database full of violations costs no memory here.
        """
        room = VIOLATIONS_SHOWN - len(self.violations)
        rows_of = violations if isinstance(violations, Composable) else SQL(violations)
        bounded = _BOUNDED.format(rows=rows_of)
        rows = connection.execute(bounded, {**parameters, "shown": max(room, 1)}).fetchall()
        self.violations += [sentence.format(*row[:-1]) for row in rows[:room]]
        if rows:
            self.more += int(rows[0][-1]) - min(room, len(rows))

    def add(self, violation: str) -> None:
        """One violation that no query found."""
        if len(self.violations) < VIOLATIONS_SHOWN:
            self.violations.append(violation)
        else:
            self.more += 1

    def count(self, connection: Connection, query: LiteralString) -> None:
        """Add the single number that a query answers to what was looked at."""
        row = connection.execute(query).fetchone()
        self.checked += int(row[0]) if row else 0
