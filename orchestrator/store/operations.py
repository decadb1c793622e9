"""Operation records: the memory that makes a retry safe (P4; DESIGN §6).

The record is written in the transaction of its effect. A rival with the same key waits on the unique key, bounded by the
session's lock_timeout, and reads the first answer in a second statement (one statement would miss it: TRAPS).
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from orchestrator.domain.errors import OperationConflict, OperationInProgress
from orchestrator.store.database import Transaction


@dataclass(frozen=True, slots=True)
class Operation:
    """One client-visible write: whose, under which key, with which content (SHA-256 fingerprint)."""

    scope: UUID
    key: str
    fingerprint: bytes
    retention_seconds: float
    request_id: str | None = None
    key_is_ours: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client is told: status and body bytes as stored, and whether this is a repetition."""

    status: int
    body: str
    replayed: bool = False


_CLAIM = """
insert into operations (scope, key, fingerprint, retire_after)
values (:scope, :key, :fingerprint, clock_timestamp() + make_interval(secs => :retention))
on conflict do nothing returning true
"""
_READ = "select fingerprint, status, body from operations where scope = :scope and key = :key"
_CONCLUDE = """
update operations set status = :status, code = :code, body = :body, subject_id = :subject
where scope = :scope and key = :key
"""


async def claim_key(tx: Transaction, operation: Operation) -> Answer | None:
    """Take the key for this transaction, or answer what its first use was told.

    Raises `OperationConflict` if the key was used with other content, `OperationInProgress` if its first use has
    vanished again between two statements (it rolled back: try again).
    """
    own = {"scope": operation.scope, "key": operation.key}
    taken = await tx.execute(
        _CLAIM, {**own, "fingerprint": operation.fingerprint, "retention": operation.retention_seconds}
    )
    if taken.first() is not None:
        return None
    stored = (await tx.execute(_READ, own)).first()
    if stored is None:
        raise OperationInProgress("the first attempt with this key has just ended without effect; try again")
    return stored_answer(operation, bytes(stored.fingerprint), stored.status, stored.body)


def stored_answer(operation: Operation, fingerprint: bytes, status: int, body: str) -> Answer:
    """The first answer, for the same content only."""
    if fingerprint != operation.fingerprint:
        raise OperationConflict(f"the key {operation.key!r} was used before with other content")
    return Answer(status, body, replayed=True)


async def conclude(
    tx: Transaction, operation: Operation, *, status: int, code: str, body: str, subject: UUID | None
) -> Answer:
    """Store the answer with its key."""
    await tx.execute(
        _CONCLUDE,
        {
            "scope": operation.scope,
            "key": operation.key,
            "status": status,
            "code": code,
            "body": body,
            "subject": subject,
        },
    )
    return Answer(status, body)
