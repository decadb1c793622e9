"""SQL of the audit: rows of actions, their chain, and lists of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.tenants.principals import Actor

_INSERT = """
insert into audit_pending (principal_kind, principal_id, action, subject, detail, request_id)
values (:kind, :id, :action, :subject, cast(:detail as jsonb), :request_id)
"""


async def record(
    tx: Transaction, actor: Actor, action: str, subject: str, detail: dict[str, Any], request_id: str | None
) -> None:
    """Record an action, its actor and its subject, in the transaction of the action.

    In the transaction of an operation the first call completes the operation's audit row, which a trigger writes when the
    operation is concluded (audit_operation.sql); anything else gets a separate row.
    """
    if tx.in_operation and tx.audited is None:
        # The time of the action, not that of the end of its transaction.
        at = (await tx.execute("select clock_timestamp()")).scalar_one()
        tx.audited = {
            "at": at,
            "kind": actor.kind.value,
            "id": actor.id,
            "action": action,
            "subject": subject,
            "detail": detail,
        }
        tx.audited |= {"request": request_id} if request_id else {}
        return
    values = {"kind": actor.kind.value, "id": actor.id, "action": action, "subject": subject}
    await tx.execute(_INSERT, {**values, "detail": json.dumps(detail, default=str), "request_id": request_id})


_INSERT_REQUESTS = """
with batch as (
    insert into audit_batches as b (recorder, batch) values (:recorder, :batch)
    on conflict (recorder) do update set batch = excluded.batch, written_at = clock_timestamp() where b.batch < excluded.batch
    returning b.batch
)
insert into audit_pending (at, principal_kind, principal_id, role, tenant_id, source, user_agent, action, subject, status, code,
                           operation_key, request_id, detail)
select cast(c ->> 'at' as timestamptz), c ->> 'kind', c ->> 'id', c ->> 'role', cast(c ->> 'tenant' as uuid),
       c ->> 'source', c ->> 'agent', c ->> 'action', c ->> 'subject', cast(c ->> 'status' as smallint), c ->> 'code',
       c ->> 'operation_key', c ->> 'request', coalesce(c -> 'detail', '{}')
from batch cross join jsonb_array_elements(cast(:rows as jsonb)) with ordinality as given(c, n) order by n
"""


async def record_requests(tx: Transaction, rows: Sequence[Mapping[str, Any]], recorder: UUID, batch: int) -> None:
    """Record requests that no operation records, in this order, with one statement.

    A row has the members of `audited_caller`, `at` (ISO 8601), `status`, `code` and, if there is one, `operation_key`.
    Records nothing if the recorder has stored this batch already: numbers ascend, and a batch is repeated with its number
    while its outcome is unknown. Waits for an earlier transaction with the batch, as for any lock.
    """
    await tx.execute(_INSERT_REQUESTS, {"rows": json.dumps(rows), "recorder": recorder, "batch": batch})


_FORGET_RECORDERS = "delete from audit_batches where written_at < clock_timestamp() - interval '7 days'"


async def forget_recorders(tx: Transaction) -> None:
    """Delete the batch numbers of recorders that have stored nothing for seven days, which bounds the table."""
    await tx.execute(_FORGET_RECORDERS)


_ADVANCE = "select audit_advance(:limit)"


async def advance_chain(tx: Transaction, limit: int) -> int:
    """Move up to `limit` waiting rows into the chain, under the lock of its head; return how many."""
    moved: int = (await tx.execute(_ADVANCE, {"limit": limit})).scalar_one()
    return moved


@dataclass(frozen=True, slots=True)
class Entry:
    """An audited action: principal, object, outcome and request; `hash` is that of the chain up to this row, in hex."""

    sequence: int
    id: int
    at: datetime
    recorded_at: datetime
    principal: dict[str, str | None]
    tenant_id: UUID | None
    source: str | None
    user_agent: str | None
    action: str
    subject: str
    status: int | None
    code: str
    operation_key: str | None
    request_id: str | None
    correlation_id: UUID | None
    detail: dict[str, Any]
    hash: str


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rows: all that match every member that is not None. `since` and `until` compare with `recorded_at`."""

    subject: str | None = None
    principal: str | None = None
    tenant_id: UUID | None = None
    action: str | None = None
    outcome: str | None = None
    since: datetime | None = None
    until: datetime | None = None


# `recorded_at` never decreases with the sequence, so a range of time is a range of sequences. The values are known when the
# statement is planned, so members that are null cost nothing; `audit_refusals` holds every other outcome than `ok`.
_LIST = """
select sequence, id, at, recorded_at, jsonb_build_object('kind', principal_kind, 'id', principal_id, 'role', role) as principal,
       tenant_id, source, user_agent, action, subject, status, code, operation_key, request_id, correlation_id, detail,
       encode(hash, 'hex') as hash
from audit_chain
where sequence > :after
  and (cast(:subject as text) is null or subject = :subject)
  and (cast(:principal as text) is null or principal_id = :principal)
  and (cast(:tenant_id as uuid) is null or tenant_id = :tenant_id)
  and (cast(:action as text) is null or action = :action)
  and (cast(:outcome as text) is null or code = :outcome)
  and (cast(:since as timestamptz) is null or sequence >= (
      select c.sequence from audit_chain c where c.recorded_at >= :since order by c.recorded_at, c.sequence limit 1))
  and (cast(:until as timestamptz) is null or sequence <= (
      select c.sequence from audit_chain c where c.recorded_at < :until order by c.recorded_at desc, c.sequence desc limit 1))
order by sequence limit :limit
"""


async def list_entries(reading: Reading, matching: Filter, *, after: int, limit: int) -> list[Entry]:
    """Up to `limit` rows of the chain after this sequence, in its order."""
    rows = await reading.execute(_LIST, {**asdict(matching), "after": after, "limit": limit})
    return [Entry(**row._mapping) for row in rows]
