"""Operation records: the memory that makes a retry safe (P4; DESIGN §6).

The record is written in the transaction of its effect. A rival with the same key waits on the unique key, bounded by the
session's lock_timeout, and reads the first answer in a second statement (one statement would miss it: TRAPS).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import UUID

import orjson

from berth.process.json_objects import JsonMapping, JsonObject
from orchestrator.database.transactions import Transaction
from orchestrator.operations.outcomes import StoredResponse
from orchestrator.problems import OperationConflict, OperationFenced, OperationInProgress


@dataclass(frozen=True, slots=True)
class Repetition:
    """What a release, cancel or confirm without a key needs to share a transaction with identical requests.

    `take_turn` returns when its principal may run it. `note_leader` is called with the key of the operation that answered it.
    """

    principal: UUID
    take_turn: Callable[[], Awaitable[None]]
    note_leader: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Operation:
    """One client-visible write: its scope, idempotency key and content (SHA-256 fingerprint).

    `key_is_ours`: the client sent none, so it cannot be repeated. `ending`: it ends something (release, cancel, confirm),
    so it is not refused for want of room to remember it (P13).
    `caller`: what its audit row states (orchestrator/http/audited/callers.py).
    `repetition`: it may be answered by the transaction of an identical request (orchestrator/edge/repetitions.py).
    """

    scope: UUID
    key: str
    fingerprint: bytes
    retention_seconds: float
    request_id: str | None = None
    key_is_ours: bool = False
    ending: bool = False
    caller: JsonMapping | None = field(default=None, compare=False)
    repetition: Repetition | None = field(default=None, compare=False)

    def caller_with(self, correlation_id: UUID) -> JsonObject:
        """The caller, with the correlation id of what the operation makes."""
        return {**(self.caller or {}), "correlation": str(correlation_id)}

    @property
    def caller_json(self) -> str:
        """The caller as text for PostgreSQL; an empty object if nothing is known of it."""
        return orjson.dumps(self.caller or {}).decode()


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: status and body bytes as stored, and whether it is a replay.

    `kept_seconds`: for how long the database keeps it at least; 0 where that is unknown. `version`: of the operation's last
    event, if it is known.
    """

    status: int
    body: str
    replayed: bool = False
    kept_seconds: float = field(default=0.0, compare=False)
    version: int | None = field(default=None, compare=False)


NOOP = "noop"
"""The code of what found nothing left to do."""

_CLAIM = """
insert into operations (scope, key, fingerprint, ending, caller, retire_after)
values (:scope, :key, :fingerprint, :ending, cast(:caller as jsonb), clock_timestamp() + make_interval(secs => :retention))
on conflict do nothing
returning (
    select jsonb_build_object('fingerprint', encode(c.fingerprint, 'hex'), 'status', c.status, 'body', c.body)
    from standing_creation(:scope, :key) c
)
"""
_READ = """
select fingerprint, status, body, extract(epoch from retire_after - clock_timestamp())::float8 as kept_seconds
from operations where scope = :scope and key = :key
"""
_CONCLUDE = """
update operations set status = :status, code = :code, body = :body, subject_id = :subject, event_id = :event,
       caller = caller || cast(:audited as jsonb)
where scope = :scope and key = :key
"""
_CONCLUDE_AND_TELL = """
with stored as (
    update operations set status = :status, code = :code, body = :body, subject_id = :subject,
           caller = caller || cast(:audited as jsonb)
    where scope = :scope and key = :key returning scope, key, status, code
)
select tell_committed_v2(
    scope, key, status, code, cast(:request_id as text), cast(:action as text), cast(:object as text)) from stored
"""
_LET_GO = "delete from operations where scope = :scope and key = :key and status is null"


async def reserve_key(tx: Transaction, operation: Operation) -> Answer | None:
    """Reserve the key for this transaction, or return the answer to its first use.

    Raises `OperationConflict` if the key was used with other content, also long ago by a creation whose row still exists;
    `OperationFenced` if a status query answered that it had not been used; `OperationInProgress` if its first use has vanished
    again between two statements (it rolled back: try again); `OperationTableFull`.
    """
    own = {"scope": operation.scope, "key": operation.key}
    wanted = {
        "fingerprint": operation.fingerprint,
        "retention": operation.retention_seconds,
        "ending": operation.ending,
        "caller": operation.caller_json,
    }
    tx.in_operation = True
    taken = (await tx.execute(_CLAIM, {**own, **wanted})).first()
    if taken is not None:
        standing = taken[0]
        if standing is None:
            return None
        await tx.execute(_LET_GO, own)
        return stored_answer(operation, bytes.fromhex(standing["fingerprint"]), standing["status"], standing["body"])
    stored = (await tx.execute(_READ, own)).first()
    if stored is None:
        raise OperationInProgress.ended_without_effect()
    return stored_answer(operation, stored.fingerprint, stored.status, stored.body, stored.kept_seconds)


def stored_answer(
    operation: Operation, fingerprint: bytes | None, status: int, body: str, kept_seconds: float = 0.0
) -> Answer:
    """The first answer, for the same content only; a tombstone (no fingerprint) refuses whatever comes."""
    if fingerprint is None:
        raise OperationFenced(
            f"the key {operation.key!r} was fenced by a status query before this request came, which found it unused;"
            " so it was not done and never will be: use another key"
        )
    if bytes(fingerprint) != operation.fingerprint:
        raise OperationConflict(f"the key {operation.key!r} was used before with other content")
    return Answer(status, body, replayed=True, kept_seconds=kept_seconds)


def replay(operation: Operation, stored: StoredResponse) -> Answer:
    """The answer to a repeated request. Raises `OperationConflict` and `OperationFenced`, as `stored_answer` does.

    A creation is known as long as its row exists; how long a stored refusal is kept is not known here.
    """
    kept_seconds = operation.retention_seconds if stored.status < 400 else 0.0
    return stored_answer(operation, stored.fingerprint, stored.status, stored.body, kept_seconds)


def _told(tx: Transaction, operation: Operation, made: UUID | None) -> dict[str, str | None]:
    """Action and object of the operation, as its audit row names them."""
    audited = {**(operation.caller or {}), **(tx.audited or {})}
    subject = audited.get("subject")
    if subject is not None and made is not None and "/" not in subject:
        subject = f"{subject}/{made}"
    return {"action": audited.get("action"), "object": subject}


async def conclude(
    tx: Transaction, operation: Operation, *, status: int, code: str, body: str, subject: UUID | None
) -> Answer:
    """Store the answer with its key, and see to it that the operation has a place in the log (DESIGN §7).

    Where none of the transaction's events carries the key, or there was nothing left to do, `operation.committed` does.
    """
    emits = tx.operation_event is not None and code != NOOP
    await tx.execute(
        _CONCLUDE if emits else _CONCLUDE_AND_TELL,
        {
            "scope": operation.scope,
            "key": operation.key,
            "status": status,
            "code": code,
            "body": body,
            "subject": subject,
            "audited": orjson.dumps(tx.audited or {}, default=str).decode(),
            "event": tx.operation_event if emits else None,
            **({} if emits else {"request_id": operation.request_id, **_told(tx, operation, subject)}),
        },
    )
    return Answer(status, body, kept_seconds=operation.retention_seconds)
