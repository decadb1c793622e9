"""Remembers refusals: operation record and `operation.refused` event in one statement, for a list at once (DESIGN §6, §7).

A refusal changes nothing else, so any number of them share a transaction without knowing of each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

import orjson

from berth.process.json_objects import JsonObject
from orchestrator.database.transactions import Transaction
from orchestrator.operations.store.operations import Answer, Operation, stored_answer
from orchestrator.problems import OperationInProgress, Problem


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal on its way into the record. `tenant_id` is None for an operator's."""

    operation: Operation
    refusal: Problem
    tenant_id: UUID | None


_STORE = """
with given as materialized (
    select *, uuidv7() as event_id
    from jsonb_to_recordset(cast(:items as jsonb)) as i(n integer, scope uuid, key text, fingerprint text,
        retention float8, status smallint, code text, document jsonb, tenant_id uuid, correlation_id uuid,
        request_id text, reason text, ending boolean, caller jsonb)
), clock as materialized (
    select now, rfc3339(now) as text,
           case when cast(:together as boolean) then shorten_lock_timeout() end as waits
    from clock_timestamp() now
), stored as (
    insert into operations (scope, key, fingerprint, ending, caller, status, code, event_id, body, retire_after)
    select g.scope, g.key, decode(g.fingerprint, 'hex'), g.ending, g.caller, g.status, g.code, g.event_id,
           (g.document || jsonb_build_object('server_time', c.text))::text, c.now + make_interval(secs => g.retention)
    from given g, clock c
    where not exists (select from standing_creation(g.scope, g.key))
    order by g.scope, g.key
    on conflict do nothing
    returning scope, key, body
), emitted as (
    insert into outbox (event_id, event_type, occurred_at, correlation_id, tenant_id, subject, operation_key, request_id, payload)
    select g.event_id, 'operation.refused', c.now, g.correlation_id, g.tenant_id, 'operations/' || md5(g.scope || ' ' || g.key),
           g.key, g.request_id,
           jsonb_build_object('code', g.code, 'status', g.status, 'reason', g.reason, 'judged_at', c.text)
    from given g join stored s using (scope, key), clock c
)
select g.n, s.body from given g join stored s using (scope, key)
"""
_READ = """
select i.n, o.fingerprint, o.status, o.body, extract(epoch from o.retire_after - clock_timestamp())::float8 as kept_seconds
from jsonb_to_recordset(cast(:items as jsonb)) as i(n integer, scope uuid, key text)
join operations o on o.scope = i.scope and o.key = i.key
union all
select i.n, c.fingerprint, c.status, c.body, 0
from jsonb_to_recordset(cast(:items as jsonb)) as i(n integer, scope uuid, key text)
cross join lateral standing_creation(i.scope, i.key) c
where not exists (select from operations o where o.scope = i.scope and o.key = i.key)
"""


async def store_refusals(tx: Transaction, refused: Sequence[Refused]) -> list[Answer | Problem]:
    """Each refusal's answer, or the first answer that its key was given before, or the conflict with that one.

    Keys must be distinct within the list. A rival that holds a key is waited for, bounded by the lock timeout, by a list
    briefly: raises `OperationInProgress`. Raises `OperationTableFull`, `SlotOverflow` for the list as a whole. A creation
    that still exists answers for its key, however long ago its record was retired: an executed write is never refused.
    """
    items = [_item(n, one) for n, one in enumerate(refused)]
    values = {"items": orjson.dumps(items, default=str).decode(), "together": len(items) > 1}
    fresh = await tx.execute(_STORE, values)
    answers: dict[int, Answer | Problem] = {}
    for row in fresh:
        kept_seconds = refused[row.n].operation.retention_seconds
        answers[row.n] = Answer(refused[row.n].refusal.status, row.body, kept_seconds=kept_seconds)
    earlier = [item for item in items if item["n"] not in answers]
    if earlier:
        for row in await tx.execute(_READ, {"items": orjson.dumps(earlier, default=str).decode()}):
            try:
                answers[row.n] = stored_answer(
                    refused[row.n].operation, row.fingerprint, row.status, row.body, row.kept_seconds
                )
            except Problem as conflict_or_fence:
                answers[row.n] = conflict_or_fence
    vanished = OperationInProgress.ended_without_effect()
    return [answers.get(n, vanished) for n in range(len(refused))]


def _item(n: int, one: Refused) -> JsonObject:
    return {
        "n": n,
        "scope": one.operation.scope,
        "key": one.operation.key,
        "fingerprint": one.operation.fingerprint.hex(),
        "retention": one.operation.retention_seconds,
        "ending": one.operation.ending,
        "caller": one.operation.caller,
        "status": one.refusal.status,
        "code": one.refusal.code,
        "document": one.refusal.document(),
        "tenant_id": one.tenant_id,
        "correlation_id": uuid4(),
        "request_id": one.operation.request_id,
        "reason": one.refusal.extra.get("reason"),
    }
