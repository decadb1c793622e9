"""Allocations and their timelines as clients see them (docs/reference/http-api.md): rows read, and the JSON made of them."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from orchestrator.allocations.failures import next_step_of
from orchestrator.allocations.states import AllocationState
from orchestrator.database.transactions import Reading
from orchestrator.times import rfc3339

_COLUMNS = """
a.id, a.tenant_id, a.state, a.row_version, a.sku, a.shape, a.gpu_model, a.gpus, a.region, a.image, a.name,
a.labels, a.correlation_id, a.reservation_id, a.ends_at, a.requested_at, a.active_at, a.releasing_at, a.released_at,
a.release_failed_at, a.failed_at, a.failure_code, a.failure_detail, a.connection, a.release_result,
ssh_key_ids_of(a.tenant_id, a.ssh_public_keys) as ssh_key_ids,
coalesce(a.waits_for, c.waits_for) as waits_for,
case when a.waits_for is null then c.waits_since else a.waits_since end as waits_since,
case when a.waits_for is null then c.waits_until else a.waits_until end as waits_until,
n.name as node,
array(select unit - n.unit_base from unnest(c.units) part, generate_series(lower(part), upper(part) - 1) unit
      order by unit) as slots
"""
# OFFSET makes the planner look up the rows of a page, whatever size of page it estimates.
_BESIDE = """
cross join lateral (select name, unit_base from nodes where id = a.node_id offset 0) n
cross join lateral (select units, waits_for, waits_since, waits_until from claims where id = a.claim_id offset 0) c
"""
_READ = f"""
select {_COLUMNS} from allocations a {_BESIDE}
where a.id = :id and (cast(:tenant_id as uuid) is null or a.tenant_id = :tenant_id)
"""
_LIST = f"""
select {_COLUMNS} from allocations a {_BESIDE}
where {{place}} and (cast(:state as text) is null or a.state = :state)
  and (cast(:labels as jsonb) is null or a.labels @> cast(:labels as jsonb))
order by {{order}} limit :limit
"""
# Two statements, because each needs its index. The condition on the lowest id selects the partial index by tenant; with
# `tenant_id = :tenant_id` the planner could choose the index by id, which contains all tenants.
_LIST_OF_TENANT = _LIST.format(
    place="(a.tenant_id, a.id) > (:tenant_id, :after) and a.tenant_id <= :tenant_id"
    " and a.id > '00000000-0000-0000-0000-000000000000'",
    order="a.tenant_id, a.id",
)
_LIST_OF_ALL = _LIST.format(place="a.id > :after", order="a.id")
_TIMELINE = """
select id, at, kind, from_state, to_state, phase, code, detail, actor_kind, actor_id, fence
from allocation_timeline where allocation_id = :id and id > :after order by id limit :limit
"""
_LOWEST_ID = UUID(int=0)


async def read_allocation(reading: Reading, allocation_id: UUID, tenant_id: UUID | None) -> Row[Any] | None:
    """One allocation of the tenant, or of any tenant if `tenant_id` is None; None if there is none."""
    return (await reading.execute(_READ, {"id": allocation_id, "tenant_id": tenant_id})).first()


async def list_allocations(
    reading: Reading,
    tenant_id: UUID | None,
    *,
    state: AllocationState | None = None,
    label: tuple[str, str] | None = None,
    after: UUID | None = None,
    limit: int = 100,
) -> list[Row[Any]]:
    """At most `limit` allocations with ids after `after`, by id, which is by age; of all tenants if `tenant_id` is None."""
    values = {
        "state": None if state is None else state.value,
        "labels": None if label is None else json.dumps({label[0]: label[1]}),
        "after": after or _LOWEST_ID,
        "limit": limit,
    }
    if tenant_id is None:
        return list((await reading.execute(_LIST_OF_ALL, values)).all())
    return list((await reading.execute(_LIST_OF_TENANT, {**values, "tenant_id": tenant_id})).all())


async def read_timeline(reading: Reading, allocation_id: UUID, *, after: int = 0, limit: int = 1000) -> list[Row[Any]]:
    """At most `limit` timeline entries with ids after `after`, oldest first. The caller has checked the tenant."""
    values = {"id": allocation_id, "after": after, "limit": limit}
    return list((await reading.execute(_TIMELINE, values)).all())


def allocation_body(row: Row[Any]) -> dict[str, Any]:
    """The JSON of an allocation."""
    waits = None
    if row.waits_for is not None:
        waits = {"for": row.waits_for, "since": rfc3339(row.waits_since), "until": rfc3339(row.waits_until)}
    failure = None
    if row.failure_code is not None:
        step = next_step_of(row.failure_code)
        failure = {"code": row.failure_code, "detail": row.failure_detail, "next_step": step}
    return {
        "allocation_id": str(row.id),
        "tenant_id": str(row.tenant_id),
        "status": row.state,
        "sku": row.sku,
        "shape": row.shape,
        "gpu_model": row.gpu_model,
        "gpus": row.gpus,
        "region": row.region,
        "image": row.image,
        "name": row.name,
        "labels": row.labels,
        "ssh_key_ids": [str(key_id) for key_id in row.ssh_key_ids],
        "node": row.node,
        "slots": row.slots,
        "connection": row.connection,
        "failure": failure,
        "hard_stopped": None if row.release_result is None else row.release_result["hard_stopped"],
        "release_result": row.release_result,
        "waits": waits,
        "correlation_id": str(row.correlation_id),
        "reservation_id": None if row.reservation_id is None else str(row.reservation_id),
        "ends_at": rfc3339(row.ends_at),
        "row_version": row.row_version,
        "requested_at": rfc3339(row.requested_at),
        "active_at": rfc3339(row.active_at),
        "releasing_at": rfc3339(row.releasing_at),
        "released_at": rfc3339(row.released_at),
        "release_failed_at": rfc3339(row.release_failed_at),
        "failed_at": rfc3339(row.failed_at),
    }


def timeline_entry(row: Row[Any]) -> dict[str, Any]:
    """The JSON of a timeline entry; its position for the cursor is the row's id."""
    return {
        "at": rfc3339(row.at),
        "kind": row.kind,
        "from": row.from_state,
        "to": row.to_state,
        "phase": row.phase,
        "code": row.code,
        "detail": row.detail,
        "next_step": next_step_of(row.code),
        "actor": {"kind": row.actor_kind, "id": row.actor_id},
        "fence": row.fence,
    }
