"""SQL that records the allocation of a machine that runs already: claim, allocation, timeline and events in one transaction.

The caller holds the locks of the node and of the tenant's quota, and has found no open claim on the node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID, uuid4

from berth.process.json_objects import JsonMapping
from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store.advance import Change, advance_if, lock_allocation
from orchestrator.allocations.store.timeline import note
from orchestrator.allocations.subject import Subject
from orchestrator.allocations.waits import Wait
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import EventType
from orchestrator.operations.store.operations import Operation
from orchestrator.placement.admission import AdmittedUse
from orchestrator.tenants.principals import Actor

ADOPTS: Final = "adopts:"
"""Begins the operation key of such an allocation: its operation is that of the operator, not of the tenant."""
ADOPTED: Final = "adopted"
"""The code of the note in its timeline."""

# As a create's: the same tables, and the same constraints on claims. Time and claim begin at the clock after the locks.
_RECORD = """
with put as materialized (
    select n.id as node_id, n.region, n.slot_count, int8multirange(int8range(n.unit_base, n.unit_base + n.slot_count)) as units,
           nextval('fences') as fence, nextval('claims_id_seq') as claim_id, uuidv7() as id,
           cast(:clock as timestamptz) as stamp,
           cast(:ends_at as timestamptz) as ends_at, cast(:tenant_id as uuid) as tenant_id
    from nodes n where n.id = :node_id
), claim as (
    insert into claims (id, node_id, tenant_id, owner_kind, owner_id, units, during, occupied, occupied_from, fence)
    overriding system value
    select claim_id, node_id, tenant_id, 'allocation', id, units, tstzrange(stamp, ends_at), true, stamp, fence from put
), allocation as (
    insert into allocations (id, tenant_id, sku, shape, gpu_model, gpus, region, image, price_version, name, labels,
        ssh_public_keys, node_id, claim_id, operation_key, operation_fingerprint, correlation_id, requested_at, ends_at,
        waits_for, waits_since, waits_until, adoption)
    select id, tenant_id, :sku, :shape, :gpu_model, slot_count, region, :image, :price_version, :name, cast(:labels as jsonb),
        (select coalesce(array_agg(k.public_key order by k.id), '{}') from ssh_keys k  -- none: deleted since they were found
         where k.id = any (cast(:ssh_key_ids as uuid[]))),
        node_id, claim_id, :own_key, :fingerprint, :correlation_id, stamp, ends_at, 'worker', stamp, stamp,
        cast(:adoption as jsonb)
    from put
), timeline as (
    insert into allocation_timeline (allocation_id, at, kind, to_state, row_version, actor_kind, actor_id, fence)
    select id, stamp, 'transition', 'requested', 1, :actor_kind, :actor_id, fence from put
), event as (
    insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, operation_key, request_id, payload)
    select 'provisioning.requested', stamp, :correlation_id, tenant_id, 'allocations/' || id, :key, :request_id,
        jsonb_build_object('allocation_id', id, 'sku', cast(:sku as text), 'shape', cast(:shape as text), 'gpus', slot_count,
            'region', region, 'ends_at', rfc3339(ends_at), 'node_id', node_id, 'fence', fence, 'adopted', true,
            'units', (select jsonb_agg(jsonb_build_array(lower(part), upper(part)) order by part) from unnest(units) part))
    from put
), used as (
    update tenant_quotas q set gpus_used = q.gpus_used + p.slot_count, row_version = q.row_version + 1
    from put p where q.tenant_id = p.tenant_id
)
select id from put
"""
_FIT = "select refresh_node_fit(:node_id)"
_QUOTA = """
select t.state, t.depleted_at is not null as is_depleted, q.gpus_limit, q.gpus_used
from tenant_quotas q join tenants t on t.id = q.tenant_id where q.tenant_id = :tenant_id for no key update of q
"""


@dataclass(frozen=True, slots=True)
class LockedQuota:
    """A tenant and its use of GPUs, which stays so until the transaction ends."""

    state: str
    is_depleted: bool
    gpus_limit: int | None
    gpus_used: int


@dataclass(frozen=True, slots=True)
class Tenancy:
    """What the tenant has, as the operator states it. `adoption`: what a release needs to inspect the machine first."""

    tenant_id: UUID
    admitted: AdmittedUse
    ssh_key_ids: Sequence[UUID]
    name: str | None
    labels: Mapping[str, str]
    ends_at: datetime | None
    connection: JsonMapping
    adoption: JsonMapping


async def lock_tenant_quota(tx: Transaction, tenant_id: UUID) -> LockedQuota | None:
    """State and quota of a tenant; None if it does not exist or is deleted. The last lock of a transaction."""
    row = (await tx.execute(_QUOTA, {"tenant_id": tenant_id})).first()
    return None if row is None else LockedQuota(**row._mapping)


async def record_adopted(
    tx: Transaction, node_id: UUID, tenancy: Tenancy, clock: datetime, operation: Operation, actor: Actor, detail: str
) -> UUID:
    """An `active` allocation of the whole node from now on; its id. `detail`: what its timeline says of it."""
    values = {
        "node_id": node_id, "tenant_id": tenancy.tenant_id, "clock": clock, "ends_at": tenancy.ends_at,
        "sku": tenancy.admitted.sku.name, "shape": tenancy.admitted.sku.shape, "gpu_model": tenancy.admitted.sku.gpu_model,
        "image": tenancy.admitted.image.name, "price_version": tenancy.admitted.sku.price_version, "name": tenancy.name,
        "labels": json.dumps(dict(tenancy.labels)), "ssh_key_ids": list(tenancy.ssh_key_ids),
        "own_key": f"{ADOPTS}{uuid4()}", "fingerprint": operation.fingerprint, "correlation_id": uuid4(),
        "adoption": json.dumps(dict(tenancy.adoption)), "actor_kind": actor.kind.value, "actor_id": actor.id,
        "key": operation.key, "request_id": operation.request_id,
    }  # fmt: skip
    allocation_id: UUID = (await tx.execute(_RECORD, values)).scalar_one()
    subject = await _locked(tx, allocation_id)
    started = Change(AllocationState.PROVISIONING, subject.fence, waits_for=Wait.NODE, wait_seconds=0.0)
    await advance_if(tx, subject, started, actor)
    subject = await _locked(tx, allocation_id)
    await advance_if(tx, subject, _active(subject, tenancy, operation), actor)
    await note(tx, allocation_id, actor, ADOPTED, detail, subject.fence)
    await tx.execute(_FIT, {"node_id": node_id})
    return allocation_id


async def _locked(tx: Transaction, allocation_id: UUID) -> Subject:
    subject = await lock_allocation(tx, allocation_id)
    assert subject is not None, "this transaction has written it"
    return subject


def _active(subject: Subject, tenancy: Tenancy, operation: Operation) -> Change:
    """Metering begins here: what ran before the adoption was not Berth's to bill."""
    payload = {
        "sku": subject.sku, "shape": subject.shape, "gpus": subject.gpus, "region": subject.region, "node_id": subject.node_id,
        "price_version": subject.price_version, "adopted": True,
    }  # fmt: skip
    return Change(
        AllocationState.ACTIVE, subject.fence, EventType.PROVISIONING_ACTIVE, payload, waits_for=Wait.TENANT,
        connection=dict(tenancy.connection), operation_key=operation.key, request_id=operation.request_id,
    )  # fmt: skip
