"""For each CHECK constraint: rows that it refuses, and rows at its bound that it accepts."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.rows import Row


@dataclass(frozen=True, slots=True)
class Check:
    """A constraint of `table`; each row is given as its changes to the table's valid row."""

    table: str
    refused: tuple[Row, ...]
    accepted: tuple[Row, ...] = ({},)


def length(table: str, column: str, least: int, most: int) -> Check:
    """A text with at least `least` and at most `most` characters."""
    refused = [{column: "x" * (most + 1)}] + ([{column: "x" * (least - 1)}] if least else [])
    return Check(table, tuple(refused), ({column: "x" * least}, {column: "x" * most}))


def both(one: Check, other: Check) -> Check:
    """Two columns of a table that have the same domain."""
    return Check(one.table, one.refused + other.refused, one.accepted + other.accepted)


def least(table: str, column: str, smallest: int, **others: object) -> Check:
    """A number of at least `smallest`."""
    return Check(table, ({column: smallest - 1, **others},), ({column: smallest, **others},))


def one_of(table: str, column: str, *values: str) -> Check:
    """A word of a closed list."""
    return Check(table, ({column: "unknown"}, {column: ""}), tuple({column: value} for value in values))


def one_of_states(table: str, states: dict[str, Row]) -> Check:
    """A state of a closed list."""
    return Check(table, ({"state": "unknown"},), tuple(states.values()))


def digest(table: str, column: str) -> Check:
    """A SHA-256 of 32 bytes."""
    return Check(table, ({column: b"\x01" * 31}, {column: b"\x01" * 33}))


def whole_or_absent(row: Row) -> tuple[Row, ...]:
    """The row without one column, for each of its columns."""
    return tuple({name: value for name, value in row.items() if name != absent} for absent in row)


def only_row(table: str) -> Check:
    """A table with one row, whose key is true."""
    return Check(table, ({"one": False},))


def finite(table: str, column: str, **others: object) -> Check:
    """A moment that is not infinite."""
    return Check(table, ({column: "infinity", **others},))
