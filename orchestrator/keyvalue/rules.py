"""Transactions of keys and values: preconditions, operations and their combined effect. Pure (docs/reference/keyvalue.md).

Keys are bytes and sort as such. A range is `[begin, end)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from berth.process.json_objects import JsonObject
from orchestrator.problems import Problem


@dataclass(frozen=True, slots=True)
class Write:
    """Sets a key; a value of None deletes it."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class RangeDelete:
    """Deletes every key in `[begin, end)`."""

    begin: bytes
    end: bytes


@dataclass(frozen=True, slots=True)
class Precondition:
    """Requires that nothing in `[begin, end)` has changed since `version`; `end` is None for the single key `begin`.

    `shown` is the precondition as the client sent it, with its version; it is returned as a conflict.
    """

    version: int
    begin: bytes
    end: bytes | None
    shown: JsonObject


@dataclass(frozen=True, slots=True)
class Effect:
    """The combined effect of operations: first the ranges are deleted, then the keys are written."""

    ranges: tuple[RangeDelete, ...]
    writes: tuple[Write, ...]

    @property
    def written_bytes(self) -> int:
        """Bytes of the written keys and values: the most by which the namespace can grow."""
        return sum(len(write.key) + len(write.value) for write in self.writes if write.value is not None)


def effect_of(operations: Iterable[Write | RangeDelete]) -> Effect:
    """Combine operations applied in order: each key is written at most once, and no range deletes a written key.

    A write is dropped if a later range covers it, and kept if the range came before.
    """
    ranges: list[RangeDelete] = []
    writes: dict[bytes, Write] = {}
    for operation in operations:
        if isinstance(operation, Write):
            writes[operation.key] = operation
        else:
            ranges.append(operation)
            writes = {key: kept for key, kept in writes.items() if not operation.begin <= key < operation.end}
    return Effect(tuple(ranges), tuple(writes.values()))


class RangeInvalid(Problem):
    """The end of a range is not after its beginning."""

    status, code, title = 400, "range_invalid", "Range invalid"


class VersionMissing(Problem):
    """A precondition names no version, and the commit no `read_version`."""

    status, code, title = 400, "version_missing", "Version missing"
