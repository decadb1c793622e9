"""Asking about a key takes the key's lock, so what is answered cannot change any more (P12; DESIGN §6).

No request with the key is in flight once the lock is held: a transaction that holds it is waited for, and one that
comes later finds a tombstone and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

import orjson

from berth.process.json_objects import JsonMapping
from orchestrator.database.transactions import Transaction
from orchestrator.problems import OperationFenced

FENCED = OperationFenced("the key was fenced by a status query before the request came, which found it unused")


@dataclass(frozen=True, slots=True)
class Known:
    """What is stored under a key. A tombstone has no fingerprint; a creation that outlived its record, no times."""

    is_tombstone: bool
    status: int
    code: str
    body: str
    subject_id: UUID | None
    created_at: datetime | None
    retire_after: datetime | None


_FENCE = """
insert into operations (scope, key, fingerprint, status, code, body, retire_after)
values (:scope, :key, null, :status, :code, :body, clock_timestamp() + make_interval(secs => :retention))
on conflict do nothing returning created_at
"""
_READ = """
select fingerprint is null as is_tombstone, status, code, body, subject_id, created_at, retire_after
from operations where scope = :scope and key = :key
"""
_READ_STANDING = """
select status, body, subject_id from standing_creation(:scope, :key)
"""
_LIFT = "delete from operations where scope = :scope and key = :key and fingerprint is null"
_TELL = """
with written as (
    insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, operation_key, request_id, payload)
    select 'operation.refused', now, :correlation_id, :tenant_id, 'operations/' || md5(:scope || ' ' || :key), :key, :request_id,
           jsonb_build_object('code', cast(:code as text), 'status', cast(:status as integer), 'reason', null,
                              'judged_at', rfc3339(now))
    from clock_timestamp() now
    returning event_id
), audited as (
    insert into audit_pending (principal_kind, principal_id, role, tenant_id, source, user_agent, action, subject, status,
                               code, operation_key, request_id)
    select coalesce(c ->> 'kind', 'unknown'), coalesce(c ->> 'id', :scope), c ->> 'role', :tenant_id, c ->> 'source',
           c ->> 'agent', 'operation.fence', 'operations', 200, 'ok', :key, :request_id
    from cast(:caller as jsonb) c
)
update operations set event_id = written.event_id from written where scope = cast(:scope as uuid) and key = :key
"""


async def lay_tombstone(tx: Transaction, scope: UUID, key: str, retention_seconds: float) -> datetime | None:
    """Fence the key off and answer when, or None if it has been used or asked about before.

    Waits for a transaction that uses the key right now, bounded by the lock timeout: `OperationInProgress`.
    """
    values = {
        "scope": scope,
        "key": key,
        "status": FENCED.status,
        "code": FENCED.code,
        "body": orjson.dumps(FENCED.document()).decode(),
        "retention": retention_seconds,
    }
    row = (await tx.execute(_FENCE, values)).first()
    return None if row is None else row.created_at


async def read_known(tx: Transaction, scope: UUID, key: str) -> Known | None:
    """What is stored under the key."""
    row = (await tx.execute(_READ, {"scope": scope, "key": key})).first()
    if row is None:
        return None
    return Known(row.is_tombstone, row.status, row.code, row.body, row.subject_id, row.created_at, row.retire_after)


async def read_standing(tx: Transaction, scope: UUID, key: str) -> Known | None:
    """The creation under the key that still exists although its operation has been retired."""
    row = (await tx.execute(_READ_STANDING, {"scope": scope, "key": key})).first()
    return None if row is None else Known(False, row.status, "ok", row.body, row.subject_id, None, None)


async def lift_tombstone(tx: Transaction, scope: UUID, key: str) -> None:
    """Take back a tombstone that this transaction has laid."""
    await tx.execute(_LIFT, {"scope": scope, "key": key})


async def tell_of_tombstone(
    tx: Transaction,
    scope: UUID,
    key: str,
    tenant_id: UUID | None,
    request_id: str | None,
    caller: JsonMapping | None = None,
) -> None:
    """Write the event of the refusal that every later request with the key will get, and the audit row of the query."""
    await tx.execute(
        _TELL,
        {
            "scope": str(scope), "key": key, "tenant_id": tenant_id, "request_id": request_id,
            "correlation_id": uuid4(), "code": FENCED.code, "status": FENCED.status,
            "caller": orjson.dumps(caller or {}).decode(),
        },
    )  # fmt: skip
