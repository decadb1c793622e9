"""Transactions of keys and values: what they ask, and what of it is left to do. Pure (docs/reference/keyvalue.md).

Keys are bytes and sort as such. A range is `[begin, end)`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from orchestrator.problems import Problem

OPERATORS_NAMESPACE = UUID(int=0)
"""Of all operators together; every tenant has one of its own, under its id."""


@dataclass(frozen=True, slots=True)
class Write:
    """The key has this value afterwards; None: it does not exist."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class RangeDelete:
    """No key in `[begin, end)` exists afterwards."""

    begin: bytes
    end: bytes


@dataclass(frozen=True, slots=True)
class Precondition:
    """Nothing in `[begin, end)` has changed since `version`; `end` is None for the one key `begin`.

    `shown` is how the client wrote it, version included.
    """

    version: int
    begin: bytes
    end: bytes | None
    shown: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Effect:
    """Operations without those that later ones overwrite: first the ranges are deleted, then the keys are written."""

    ranges: tuple[RangeDelete, ...]
    writes: tuple[Write, ...]

    @property
    def written_bytes(self) -> int:
        """Of the keys and values that are written: by no more than that the namespace can grow."""
        return sum(len(write.key) + len(write.value) for write in self.writes if write.value is not None)


def effect_of(operations: Iterable[Write | RangeDelete]) -> Effect:
    """What operations, applied in order, come to: each key is written once at most, and no range deletes what is written.

    A write before a range that covers it is undone by it, whatever comes between; one after it does not care about it.
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
    """A range's end is not beyond its begin."""

    status, code, title = 400, "range_invalid", "Range invalid"


class VersionMissing(Problem):
    """A precondition names no version, and the commit no `read_version`."""

    status, code, title = 400, "version_missing", "Version missing"


class VersionInFuture(Problem):
    """A version that nobody was told: the log does not reach that far; `version` says how far it does."""

    status, code, title = 400, "version_in_future", "Version in future"


class NamespaceFull(Problem):
    """The namespace would pass its bound on keys or on bytes."""

    status, code, title, business = 409, "namespace_full", "Namespace full", True


class LeaderUnaccepted(Problem):
    """This Postgres is not the one that the log is written by, until an operator says so: no version can be told."""

    status, code, title = 503, "leader_unaccepted", "Leader unaccepted"
    retry_after_seconds = 5
