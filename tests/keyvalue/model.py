"""What a namespace is: a dict whose keys know the version that changed them last. Judges commits as the document says."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any


def raw(text: str) -> bytes:
    """Base64 as bytes."""
    return base64.b64decode(text)


@dataclass
class Model:
    """The state after every commit that was applied, in the order of their versions."""

    values: dict[bytes, bytes] = field(default_factory=dict)
    changed: dict[bytes, int] = field(default_factory=dict)

    def conflicts(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The preconditions that are not satisfied, versions filled in."""
        return [
            wanted
            for wanted in ({"version": body.get("read_version"), **one} for one in body["preconditions"])
            if any(version > wanted["version"] for key, version in self.changed.items() if _covers(wanted, key))
        ]

    def apply(self, body: dict[str, Any], version: int) -> None:
        """The operations, one after another."""
        before = dict(self.values)
        written: set[bytes] = set()
        for operation in body["operations"]:
            if operation["type"] == "write":
                self.values[raw(operation["key"])] = raw(operation["value"])
                written.add(raw(operation["key"]))
            else:
                gone = [key for key in self.values if _covers(operation, key)]
                for key in gone:
                    del self.values[key]
                    written.discard(key)
        self.changed |= dict.fromkeys(written, version)
        self.changed |= {key: version for key in before if key not in self.values}


def _covers(member: dict[str, Any], key: bytes) -> bool:
    if "key" in member:
        return raw(member["key"]) == key
    return raw(member["begin"]) <= key < raw(member["end"])


@dataclass(frozen=True)
class RecordedCommit:
    """One commit: what was asked, what was answered, and when (any one clock)."""

    body: dict[str, Any]
    answer: dict[str, Any]
    began: float
    ended: float


def judge(history: list[RecordedCommit], model: Model) -> None:
    """Strict serialisability: the versions are one order of all commits, refused ones too, that contains the order in which
    they were seen to follow each other, and in which each is answered exactly as if they had come one by one.
    """
    ordered = sorted(history, key=lambda told: told.answer["version"])
    versions = [told.answer["version"] for told in ordered]
    assert len(set(versions)) == len(versions)
    latest = float("-inf")
    for told in reversed(ordered):
        # No later one in the order had ended before this one began.
        assert latest == float("-inf") or told.began <= latest, told
        latest = told.ended if latest == float("-inf") else min(latest, told.ended)
    for told in ordered:
        conflicts = model.conflicts(told.body)
        key = _sorted
        assert sorted(told.answer["conflicts"], key=key) == sorted(conflicts, key=key), told
        assert told.answer["status"] == ("not_committed" if conflicts else "committed"), told
        if not conflicts:
            model.apply(told.body, told.answer["version"])


def _sorted(conflict: dict[str, Any]) -> list[tuple[str, str]]:
    return sorted((name, str(value)) for name, value in conflict.items())
