"""SQL of the audit: rows of actions, and their chain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from uuid import UUID

from berth.process.json_objects import JsonMapping, JsonObject
from orchestrator.database.transactions import Transaction
from orchestrator.tenants.principals import Actor

_INSERT = """
insert into audit_pending (principal_kind, principal_id, action, subject, detail, request_id, tenant_id)
values (:kind, :id, :action, :subject, cast(:detail as jsonb), :request_id, :tenant_id)
"""


async def record(
    tx: Transaction,
    actor: Actor,
    action: str,
    subject: str,
    detail: JsonObject,
    request_id: str | None,
    tenant_id: UUID | None = None,
) -> None:
    """Record an action, its actor and its subject, in the transaction of the action; `tenant_id`: of a row without an operation.

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
    written = json.dumps(detail, default=str)
    await tx.execute(_INSERT, {**values, "detail": written, "request_id": request_id, "tenant_id": tenant_id})


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
       c ->> 'operation_key', c ->> 'request',
       coalesce(c -> 'detail', '{}') || case when c ? 'user' then jsonb_build_object('user', c -> 'user') else '{}' end
from batch cross join jsonb_array_elements(cast(:rows as jsonb)) with ordinality as given(c, n) order by n
"""


async def record_requests(tx: Transaction, rows: Sequence[JsonMapping], recorder: UUID, batch: int) -> None:
    """Record requests that no operation records, in this order, with one statement.

    A row has the members of `audited_caller` (`user` becomes part of the detail),
    `at` (ISO 8601), `status`, `code` and, if there is one, `operation_key`.
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
