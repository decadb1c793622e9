"""Transactions of keys and values in one server-side call, and their versions in the log (docs/reference/keyvalue.md)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
import sqlalchemy.exc

from orchestrator.database.sqlstates import LEADER_UNACCEPTED, NAMESPACE_FULL, sqlstate_of
from orchestrator.database.transactions import Transaction
from orchestrator.keyvalue.rules import OPERATORS_NAMESPACE, Effect, LeaderUnaccepted, NamespaceFull, Precondition
from orchestrator.operations.store.operations import Operation

_COMMIT = "select head, answers from kv_commit(cast(:items as jsonb))"
_VERSIONS = "select moved, versions from kv_versions(cast(:events as uuid[]), :after, :limit)"
_FORGET = "select kv_forget(:limit)"


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction as it was asked for. `version_max`: the newest version that it names; `payload`: of its event.

    `keys_max`, `bytes_max`: the bounds of the namespace.
    """

    operation: Operation
    namespace: UUID
    leader_id: str | None
    version_max: int | None
    preconditions: tuple[Precondition, ...]
    effect: Effect
    payload: dict[str, Any]
    correlation_id: UUID
    keys_max: int
    bytes_max: int

    @property
    def tenant_id(self) -> UUID | None:
        """Whose it is; None for the operators."""
        return None if self.namespace == OPERATORS_NAMESPACE else self.namespace

    @property
    def is_heavy(self) -> bool:
        """Whether it may look at more keys than it names: others in a list would wait for it."""
        return bool(self.effect.ranges) or any(wanted.end is not None for wanted in self.preconditions)

    def item(self, *, alone: bool) -> dict[str, Any]:
        """What the server-side call takes."""
        own = self.operation
        return {
            "scope": str(own.scope), "key": own.key, "fingerprint": own.fingerprint.hex(), "request_id": own.request_id,
            "retention_seconds": own.retention_seconds, "correlation_id": str(self.correlation_id),
            "namespace": str(self.namespace), "leader_id": self.leader_id, "version_max": self.version_max,
            "preconditions": [_precondition(wanted) for wanted in self.preconditions],
            "conflicts": [wanted.shown for wanted in self.preconditions],
            "ranges": [[_text(gone.begin), _text(gone.end)] for gone in self.effect.ranges],
            "puts": [[_text(put.key), None if put.value is None else _text(put.value)] for put in self.effect.writes],
            "put_bytes": self.effect.written_bytes, "payload": self.payload,
            "keys_max": self.keys_max, "bytes_max": self.bytes_max, "alone": alone,
        }  # fmt: skip


def _text(raw: bytes) -> str:
    return b64encode(raw).decode()


def _precondition(wanted: Precondition) -> dict[str, Any]:
    # The key that follows another one is that one and a zero byte.
    end = wanted.begin + b"\0" if wanted.end is None else wanted.end
    return {
        "version": wanted.version, "lo": _text(wanted.begin), "hi": _text(end), "point": wanted.end is None,
    }  # fmt: skip


async def commit_all(tx: Transaction, commits: Sequence[Commit], *, alone: bool) -> tuple[int, list[dict[str, Any]]]:
    """What became of each, in the words of `kv_commit`, and a version older than theirs. The one statement of `tx`.

    Raises `LeaderUnaccepted`, `TransactionConflict`, `OperationTableFull`; and `NamespaceFull`, for one that is alone.
    """
    items = orjson.dumps([commit.item(alone=alone) for commit in commits]).decode()
    row = await _call(tx, _COMMIT, {"items": items})
    return row.head, row.answers


async def give_versions(
    tx: Transaction, events: Sequence[str], after: int, limit: int
) -> tuple[int, dict[str, tuple[int, str]]]:
    """Sequence up to `limit` waiting events; how many those were, and the version and leader of each of `events` that has
    one by now, as long as the log keeps it. All of them are newer than `after`. The one statement of `tx`.

    Raises `LeaderUnaccepted`.
    """
    row = await _call(tx, _VERSIONS, {"events": list(events), "after": after, "limit": limit})
    return row.moved, {event: (told[0], told[1]) for event, told in row.versions.items()}


async def _call(tx: Transaction, statement: str, values: dict[str, Any]) -> Any:
    try:
        return (await tx.execute(statement, values)).one()
    except sqlalchemy.exc.DBAPIError as error:
        state = sqlstate_of(error)
        if state == LEADER_UNACCEPTED:
            raise LeaderUnaccepted(
                "this Postgres is another one than the log is written by; nothing is committed until an operator accepts it"
                " (`berth events rebuild --accept-timeline`)"
            ) from error
        if state == NAMESPACE_FULL:
            raise NamespaceFull(
                "the namespace has no room for this; delete keys, and wait for the log to forget"
            ) from error
        raise


async def forget_deleted_keys(tx: Transaction, limit: int) -> int:
    """Forget up to `limit` deleted keys that are older than the log; answers how many."""
    forgotten: int = (await tx.execute(_FORGET, {"limit": limit})).scalar_one()
    return forgotten
