"""The state of one namespace after each transaction, as docs/reference/keyvalue.md describes it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.campaign.keyvalue.records import Member, raw


@dataclass(frozen=True)
class Entry:
    """A key that exists, and the version of its last change."""

    value: bytes
    version: int


class NamespaceModel:
    """A dictionary that knows when each key was last changed, deletions included."""

    def __init__(self) -> None:
        self._entries: dict[bytes, Entry] = {}
        self._changed: dict[bytes, int] = {}

    def apply(self, operations: Iterable[Member], version: int) -> None:
        """Apply the operations in order. To delete a missing key is no change."""
        before = set(self._entries)
        for operation in operations:
            if operation["type"] == "write":
                self._entries[raw(operation["key"])] = Entry(raw(operation["value"]), version)
                continue
            for key in [key for key in self._entries if _covers(operation, key)]:
                del self._entries[key]
        self._changed |= {key: entry.version for key, entry in self._entries.items() if entry.version == version}
        self._changed |= {key: version for key in before if key not in self._entries}

    def unsatisfied(self, preconditions: Iterable[Member]) -> list[Member]:
        """The preconditions with a key that was changed after their version."""
        return [one for one in preconditions if self.last_change(one) > int(one["version"])]

    def last_change(self, covering: Member) -> int:
        """The newest change of a key that the precondition covers; 0: none."""
        return max((version for key, version in self._changed.items() if _covers(covering, key)), default=0)

    def between(self, begin: bytes, end: bytes | None) -> dict[bytes, Entry]:
        """The keys of `[begin, end)` that exist."""
        return {k: entry for k, entry in self._entries.items() if begin <= k and (end is None or k < end)}


def _covers(member: Member, key: bytes) -> bool:
    if "key" in member:
        return raw(member["key"]) == key
    return raw(member["begin"]) <= key < raw(member["end"])
