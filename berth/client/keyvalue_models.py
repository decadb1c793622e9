"""What the API answers about keys and values (docs/reference/keyvalue.md), as immutable models. Keys and values are bytes."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

from berth.client.models import Answer, Page
from berth.process.json_objects import JsonObject


def _raw(value: Any) -> Any:
    return b64decode(value) if isinstance(value, str) else value


def _shown(raw: bytes) -> str:
    return b64encode(raw).decode()


Raw = Annotated[bytes, BeforeValidator(_raw), PlainSerializer(_shown, return_type=str, when_used="json")]


class Commit(Answer):
    """What became of a transaction: `committed` or `not_committed`, then `conflicts` are the preconditions at fault.

    `version` is the transaction's, or one to read at; None if only the operation's record gave the outcome.
    """

    status: str
    conflicts: list[JsonObject] = Field(default_factory=list)
    version: int | None = None
    leader_id: str | None = None
    request_id: str


class CommitStatus(Answer):
    """The outcome of a request_id: `committed` (with `version`), `id_not_found`, or `log_truncated` (unknown)."""

    status: str
    version: int | None = None
    leader_id: str | None = None


class KeyValue(Answer):
    """One key. `version` is of its last change; None where the log does not keep that any more."""

    key: Raw
    value: Raw
    version: int | None = None


class Entry(KeyValue):
    """One key, and the version at which it was read: a precondition may name it."""

    read_version: int
    leader_id: str


class KeyPage(Page[KeyValue]):
    """One page of a range, and the version at which it was read."""

    read_version: int
    leader_id: str
