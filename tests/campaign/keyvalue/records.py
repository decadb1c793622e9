"""What clients of the key-value store saw: reads of keys, status queries of commits, and the content of a commit."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OPERATORS = "00000000-0000-0000-0000-000000000000"
"""The namespace that the operators share; that of a tenant is its id."""

Member = Mapping[str, Any]


@dataclass(frozen=True)
class ReadItem:
    """One key of a response. `version` is that of its last change; None where the log no longer holds it."""

    key: bytes
    value: bytes
    version: int | None


@dataclass(frozen=True)
class KeyRead:
    """A response to a read of `[begin, end)`; `end` None: to the last key. A key that is missing in `items` does not exist."""

    client: str
    namespace: str
    asked: float
    answered: float
    begin: bytes
    end: bytes | None
    read_version: int
    items: tuple[ReadItem, ...]
    final: bool = False
    """Whether it was made after the run, when nothing was committed any more."""

    @property
    def place(self) -> str:
        """What was read, for a sentence."""
        return f"[{self.begin!r}, {self.end!r}) of {self.namespace} at version {self.read_version}"


@dataclass(frozen=True)
class StatusSight:
    """A response to `GET /v1/status`."""

    key: str
    asked: float
    answered: float
    min_version: int
    status: str
    version: int | None


@dataclass(frozen=True)
class CommitContent:
    """What a commit asks for."""

    namespace: str
    operations: tuple[Member, ...]
    preconditions: tuple[Member, ...]

    def text(self) -> str:
        """The form in which an attempt records it."""
        members = {"operations": self.operations, "preconditions": self.preconditions}
        return json.dumps({"namespace": self.namespace, **members}, sort_keys=True)

    @staticmethod
    def of(text: str) -> CommitContent:
        """The inverse of `text`."""
        members = json.loads(text)
        return CommitContent(members["namespace"], tuple(members["operations"]), tuple(members["preconditions"]))


def raw(text: str) -> bytes:
    """Base64 as bytes."""
    return base64.b64decode(text)
