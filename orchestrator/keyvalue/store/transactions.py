"""Commits transactions of keys and values in one server-side call, and sequences them (docs/reference/keyvalue.md)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
import sqlalchemy.exc

from berth.process.json_objects import JsonObject
from orchestrator.database.outcomes import LeaderRefused
from orchestrator.database.sqlstates import decode
from orchestrator.database.transactions import Transaction
from orchestrator.keyvalue.rules import Effect, Precondition
from orchestrator.keyvalue.store.keys import LogPosition
from orchestrator.log.namespaces import OPERATORS_NAMESPACE
from orchestrator.log.refusals import LeaderUnaccepted, VersionInFuture
from orchestrator.operations.outcomes import StoredResponse
from orchestrator.operations.store.operations import Answer, Operation, replay
from orchestrator.placement.refusals import tenant_not_active
from orchestrator.problems import Problem

_COMMIT = "select head, answers from kv_commit(cast(:items as jsonb))"
_VERSIONS = "select moved, versions from kv_versions(cast(:events as uuid[]), :after, :limit)"
_FORGET = "select kv_forget(:limit)"


@dataclass(frozen=True, slots=True)
class Commit:
    """A requested transaction. `version_max`: the newest version that it names; `payload`: of its event.

    `keys_max`, `bytes_max`, `log_bytes_max`: the default limits of the namespace; the last for a day.
    """

    operation: Operation
    namespace: UUID
    leader_id: str | None
    version_max: int | None
    preconditions: tuple[Precondition, ...]
    effect: Effect
    payload: JsonObject
    payload_bytes: int
    correlation_id: UUID
    keys_max: int
    bytes_max: int
    log_bytes_max: int

    @property
    def tenant_id(self) -> UUID | None:
        """The tenant; None for the operators."""
        return None if self.namespace == OPERATORS_NAMESPACE else self.namespace

    @property
    def is_heavy(self) -> bool:
        """Whether it may read more keys than it names, and so delay others in a batch."""
        return bool(self.effect.ranges) or any(precondition.end is not None for precondition in self.preconditions)

    def item(self, *, alone: bool) -> JsonObject:
        """Return the JSON argument of `kv_commit`."""
        operation = self.operation
        return {
            "scope": str(operation.scope), "key": operation.key, "fingerprint": operation.fingerprint.hex(),
            "request_id": operation.request_id, "caller": operation.caller_with(self.correlation_id),
            "retention_seconds": operation.retention_seconds,
            "correlation_id": str(self.correlation_id), "namespace": str(self.namespace),
            "leader_id": self.leader_id, "version_max": self.version_max,
            "preconditions": [_precondition(precondition) for precondition in self.preconditions],
            "conflicts": [precondition.shown for precondition in self.preconditions],
            "ranges": [[_text(gone.begin), _text(gone.end)] for gone in self.effect.ranges],
            "puts": [[_text(put.key), None if put.value is None else _text(put.value)] for put in self.effect.writes],
            "put_bytes": self.effect.written_bytes, "payload": self.payload,
            "payload_bytes": self.payload_bytes, "keys_max": self.keys_max, "bytes_max": self.bytes_max,
            "log_bytes_max": self.log_bytes_max, "alone": alone,
        }  # fmt: skip


def _text(raw: bytes) -> str:
    return b64encode(raw).decode()


def _precondition(precondition: Precondition) -> JsonObject:
    # The next possible key is this one with a zero byte appended.
    end = precondition.begin + b"\0" if precondition.end is None else precondition.end
    return {
        "version": precondition.version, "lo": _text(precondition.begin), "hi": _text(end), "point": precondition.end is None,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredCommit:
    """The answer stored under a key, still without its version.

    `event_id`: of its event, if it has one. `position`: stored with the key, if the log has dropped the event.
    """

    answer: Answer
    event_id: str | None
    position: LogPosition | None = None


async def commit_all(
    tx: Transaction, commits: Sequence[Commit], *, alone: bool
) -> tuple[int, list[StoredCommit | Problem | None]]:
    """Commit a batch; return a version older than theirs, and one outcome per commit, in input order. The one statement of `tx`.

    An outcome of None means that the namespace may be full: the caller retries that commit alone. A `Problem` is
    `VersionInFuture`, `OperationConflict`, `OperationFenced` or `Forbidden` (deleted tenant). Raises `LeaderUnaccepted`,
    `TransactionConflict`, `OperationTableFull`; `QuotaExceeded`, of keys and bytes for a commit that is alone.
    """
    items = orjson.dumps([commit.item(alone=alone) for commit in commits]).decode()
    row = await _call(tx, _COMMIT, items=items)
    return row.head, [_decode(commit, outcome) for commit, outcome in zip(commits, row.answers, strict=True)]


def _decode(commit: Commit, outcome: JsonObject) -> StoredCommit | Problem | None:
    match outcome["outcome"]:
        case "full":
            return None
        case "committed" | "not_committed":
            body = orjson.dumps(outcome["body"]).decode()
            return StoredCommit(Answer(200, body, kept_seconds=commit.operation.retention_seconds), outcome["event_id"])
        case "existing":
            try:
                answer = replay(commit.operation, StoredResponse.decode(outcome))
            except Problem as refusal:
                return refusal
            version = outcome.get("version")
            position = None if version is None else LogPosition(version, outcome["leader_id"])
            return StoredCommit(answer, outcome.get("event_id"), position)
        case "version_in_future":
            return VersionInFuture(
                f"version {commit.version_max} does not exist; the log ends at {outcome['head']}",
                version=outcome["head"],
            )
        case "tenant":
            return tenant_not_active()
        case word:
            raise ValueError(f"{word} is not an outcome of a commit")


async def give_versions(
    tx: Transaction, events: Sequence[str], after: int, limit: int
) -> tuple[int, dict[str, LogPosition]]:
    """Sequence up to `limit` waiting events; return how many, and the positions of those of `events` that have one.

    All of `events` are newer than `after`; those that the log dropped have no position. The one statement of `tx`.
    Raises `LeaderUnaccepted`.
    """
    row = await _call(tx, _VERSIONS, events=list(events), after=after, limit=limit)
    return row.moved, {event: LogPosition(version, leader) for event, (version, leader) in row.versions.items()}


async def _call(tx: Transaction, statement: str, **values: object) -> Any:
    try:
        return (await tx.execute(statement, values)).one()
    except sqlalchemy.exc.DBAPIError as error:
        match decode(error):
            case LeaderRefused():
                raise LeaderUnaccepted(
                    "the log was written under another PostgreSQL timeline; nothing is committed until an operator accepts"
                    " this one (`berth events rebuild --accept-timeline`)"
                ) from error
            case _:
                raise


async def forget_deleted_keys(tx: Transaction, limit: int) -> int:
    """Remove up to `limit` deleted keys that are older than the log; return how many."""
    forgotten: int = (await tx.execute(_FORGET, {"limit": limit})).scalar_one()
    return forgotten
