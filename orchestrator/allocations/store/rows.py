"""Allocations and their timelines as clients see them (docs/reference/http-api.md): rows read, and the JSON made of them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import Row, bindparam, case, func, literal_column, select, text, true, tuple_

from berth.process.json_objects import JsonObject
from node_agent.wire.first_boot import FirstBootStatus
from orchestrator.allocations.failures import next_step_of
from orchestrator.allocations.health import Health
from orchestrator.allocations.states import AllocationState, GuestState
from orchestrator.allocations.tables import allocations
from orchestrator.database.transactions import Reading
from orchestrator.nodes.tables import nodes
from orchestrator.placement.tables import claims
from orchestrator.times import rfc3339, wait_document

_a, _n, _c = allocations.alias("a"), nodes.alias("n"), claims.alias("c")
# OFFSET makes the planner look up the rows of a page, whatever size of page it estimates.
_node = select(_n.c.name, _n.c.unit_base).where(_n.c.id == _a.c.node_id).offset(literal_column("0")).lateral("node")
_claim = (
    select(_c.c.units, _c.c.waits_for, _c.c.waits_since, _c.c.waits_until)
    .where(_c.c.id == _a.c.claim_id)
    .offset(literal_column("0"))
    .lateral("claim")
)
_OWN_COLUMNS = (
    "id", "tenant_id", "state", "row_version", "sku", "shape", "gpu_model", "gpus", "region", "image", "name", "labels",
    "correlation_id", "reservation_id", "ends_at", "restart_policy", "requested_at", "active_at", "releasing_at", "released_at",
    "release_failed_at", "failed_at", "failure_code", "failure_detail", "connection", "release_result", "guest_state",
    "guest_verb", "rescue", "guest_failure_code", "guest_failure_detail", "health", "health_cause", "health_since",
    "proof_of_life_at", "health_until", "first_boot", "first_boot_detail", "first_boot_since",
)  # fmt: skip
_SLOTS = """
array(select unit - node.unit_base from unnest(claim.units) part, generate_series(lower(part), upper(part) - 1) unit
      order by unit)
"""
_NETWORK = """
(select jsonb_build_object('address', host(x.address), 'subnet', w.subnet, 'gateway', host(w.subnet + 1),
            'names', array_remove(array['berth-' || x.allocation_id, x.name], null), 'published',
            (select jsonb_agg(jsonb_build_object('port', p.port, 'guest_port', p.guest_port) order by p.port)
             from published_ports p where p.allocation_id = x.allocation_id))
 from network_addresses x join networks w on w.id = x.network_id where x.allocation_id = a.id)
"""
_own_wait = _a.c.waits_for.is_not(None)
_ALLOCATIONS = select(
    *(_a.c[name] for name in _OWN_COLUMNS),
    func.ssh_key_ids_of(_a.c.tenant_id, _a.c.ssh_public_keys).label("ssh_key_ids"),
    func.coalesce(_a.c.waits_for, _claim.c.waits_for).label("waits_for"),
    case((_own_wait, _a.c.waits_since), else_=_claim.c.waits_since).label("waits_since"),
    case((_own_wait, _a.c.waits_until), else_=_claim.c.waits_until).label("waits_until"),
    _node.c.name.label("node"),
    literal_column(_SLOTS).label("slots"),
    literal_column(_NETWORK).label("network"),
).select_from(_a.join(_node, true()).join(_claim, true()))
_READ = _ALLOCATIONS.where(_a.c.id == bindparam("id"))
_READ_OF_TENANT = _READ.where(_a.c.tenant_id == bindparam("tenant_id"))
# The condition on the lowest id selects the partial index by tenant; with `tenant_id = :tenant_id` the planner could choose
# the index by id, which contains all tenants.
_LIST_OF_TENANT = _ALLOCATIONS.where(
    tuple_(_a.c.tenant_id, _a.c.id) > tuple_(bindparam("tenant_id"), bindparam("after")),
    _a.c.tenant_id <= bindparam("tenant_id"),
    text("a.id > '00000000-0000-0000-0000-000000000000'"),
).order_by(_a.c.tenant_id, _a.c.id)
_LIST_OF_ALL = _ALLOCATIONS.where(_a.c.id > bindparam("after")).order_by(_a.c.id)
_TIMELINE = """
select id, at, kind, from_state, to_state, phase, code, detail, actor_kind, actor_id, fence
from allocation_timeline where allocation_id = :id and id > :after order by id limit :limit
"""
_LOWEST_ID = UUID(int=0)


async def read_allocation(reading: Reading, allocation_id: UUID, tenant_id: UUID | None) -> Row[Any] | None:
    """One allocation of the tenant, or of any tenant if `tenant_id` is None; None if there is none."""
    if tenant_id is None:
        return (await reading.execute(_READ, {"id": allocation_id})).first()
    return (await reading.execute(_READ_OF_TENANT, {"id": allocation_id, "tenant_id": tenant_id})).first()


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
    page = (_LIST_OF_ALL if tenant_id is None else _LIST_OF_TENANT).limit(limit)
    if state is not None:
        page = page.where(_a.c.state == state.value)
    if label is not None:
        page = page.where(_a.c.labels.contains({label[0]: label[1]}))
    values = {"after": after or _LOWEST_ID} | ({} if tenant_id is None else {"tenant_id": tenant_id})
    return list((await reading.execute(page, values)).all())


async def read_timeline(reading: Reading, allocation_id: UUID, *, after: int = 0, limit: int = 1000) -> list[Row[Any]]:
    """At most `limit` timeline entries with ids after `after`, oldest first. The caller has checked the tenant."""
    values = {"id": allocation_id, "after": after, "limit": limit}
    return list((await reading.execute(_TIMELINE, values)).all())


def allocation_body(row: Row[Any]) -> JsonObject:
    """The JSON of an allocation."""
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
        "network": row.network,
        "guest": _guest(row),
        "health": _health(row),
        "failure": _failure(row.failure_code, row.failure_detail),
        "hard_stopped": None if row.release_result is None else row.release_result["hard_stopped"],
        "release_result": row.release_result,
        "waits": wait_document(row.waits_for, row.waits_since, row.waits_until),
        "correlation_id": str(row.correlation_id),
        "reservation_id": None if row.reservation_id is None else str(row.reservation_id),
        "ends_at": rfc3339(row.ends_at),
        "restart_policy": row.restart_policy,
        "row_version": row.row_version,
        "requested_at": rfc3339(row.requested_at),
        "active_at": rfc3339(row.active_at),
        "releasing_at": rfc3339(row.releasing_at),
        "released_at": rfc3339(row.released_at),
        "release_failed_at": rfc3339(row.release_failed_at),
        "failed_at": rfc3339(row.failed_at),
    }


def _guest(row: Row[Any]) -> JsonObject | None:
    """The guest of an active allocation; None in every other state, whose columns an earlier version may have left."""
    if row.state != AllocationState.ACTIVE:
        return None
    failure = _failure(row.guest_failure_code, row.guest_failure_detail)
    first_boot = {
        "status": row.first_boot or FirstBootStatus.UNKNOWN.value,
        "since": rfc3339(row.first_boot_since),
        "detail": row.first_boot_detail,
    }
    return {
        "state": row.guest_state or "running", "verb": row.guest_verb, "failure": failure, "first_boot": first_boot,
        "rescue": row.rescue if row.guest_state == GuestState.RESCUE else None,
    }  # fmt: skip


def _health(row: Row[Any]) -> JsonObject | None:
    """The health of an active allocation; None in every other state."""
    if row.state != AllocationState.ACTIVE:
        return None
    return {
        "state": row.health or Health.HEALTHY.value,
        "cause": row.health_cause,
        "since": rfc3339(row.health_since),
        "last_proof_of_life_at": rfc3339(row.proof_of_life_at),
        "waits_until": rfc3339(row.health_until),
    }


def _failure(code: str | None, detail: str | None) -> JsonObject | None:
    return None if code is None else {"code": code, "detail": detail, "next_step": next_step_of(code)}


def timeline_entry(row: Row[Any]) -> JsonObject:
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
