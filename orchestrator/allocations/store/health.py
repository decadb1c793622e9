"""SQL that changes the health of active allocations: the one door, with timeline entry and event in the same transaction.

The caller holds the lock of the node, which every other change of its allocations takes first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from node_agent.protocol import HeldInventory
from node_agent.wire.guests import GuestReport
from orchestrator.allocations.health import (
    HEALTHY,
    Condition,
    Health,
    HealthDeadlines,
    OutageCause,
    Sight,
    condition_after,
    condition_after_deadline,
)
from orchestrator.allocations.store.first_boots import note_first_boots
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.operations.execution import Context

_DIFFERENT = "select * from differing_allocations(:node_id, cast(:held as jsonb), :after)"
_HEALTHY_OF_NODE = """
select a.id, a.health, a.health_cause, coalesce(c.inherited_fence, c.fence) as fence
from allocations a join claims c on c.id = a.claim_id
where a.node_id = :node_id and a.state = 'active' and (a.health is null or a.health_cause = 'guest_unreachable')
"""
_PAST_DEADLINE = """
select a.id, a.health, a.health_cause, coalesce(c.inherited_fence, c.fence) as fence
from allocations a join claims c on c.id = a.claim_id
where a.id = :id and a.state = 'active' and a.health is not null and a.health_until <= clock_timestamp()
"""
_LAST_SEEN = "select coalesce(inventory_after, last_seen_at) from nodes where id = :node_id"
_CHANGE = """
with at as materialized (select clock_timestamp() as now),
changes as (
    select * from jsonb_to_recordset(cast(:changes as jsonb))
        as c(id uuid, health text, cause text, wait_seconds float8, fence bigint)
), moved as (
    update allocations a set
        row_version = a.row_version + 1, health = c.health, health_cause = c.cause,
        -- A guest that was unreachable has run until now: its outage begins here.
        health_since = case when c.health is not null then
            coalesce(case when a.health_cause <> 'guest_unreachable' then a.health_since end, at.now) end,
        proof_of_life_at = case when c.health is not null then
            coalesce(case when a.health_cause <> 'guest_unreachable' then a.proof_of_life_at end,
                     greatest(a.active_at, least(cast(:proof as timestamptz), at.now))) end,
        lost_at = case when c.health = 'lost' then coalesce(a.lost_at, at.now) end,
        health_until = case when c.health is not null then at.now + make_interval(secs => c.wait_seconds) end
    from changes c, at where a.id = c.id and a.state = 'active'
    returning new.id, new.tenant_id, new.correlation_id, new.node_id, c.fence, new.health_until,
        coalesce(new.health, 'recovered') as change, coalesce(new.health_cause, old.health_cause) as cause,
        coalesce(new.health_since, old.health_since) as since,
        coalesce(new.proof_of_life_at, old.proof_of_life_at) as proof_of_life_at, old.lost_at
), noted as (
    insert into allocation_timeline (allocation_id, at, kind, code, detail, actor_kind, actor_id, fence)
    select m.id, at.now, 'note', m.change, m.cause, 'system', 'health', m.fence from moved m, at
), sent as (
    insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, payload)
    select 'allocation.' || m.change, at.now, m.correlation_id, m.tenant_id, 'allocations/' || m.id, jsonb_build_object(
        'allocation_id', m.id, 'cause', m.cause, 'since', rfc3339(m.since),
        'last_proof_of_life_at', rfc3339(m.proof_of_life_at), 'fence', m.fence)
        || case m.change when 'recovered' then jsonb_build_object('recovered_at', rfc3339(at.now), 'lost_at', rfc3339(m.lost_at))
                         else jsonb_build_object('waits_until', rfc3339(m.health_until)) end
    from moved m, at order by m.id
)
select change from moved
"""
_DUE = """
select id from allocations where health is not null and state = 'active' and health_until <= (select clock_timestamp())
order by health_until limit :limit
"""
# Marked offline by another door than silence, or active only since. Of a node without an agent the BMC alone is silent.
_UNNOTICED = """
select n.id from nodes n where not n.online and n.state <> 'retired'
  and (n.driver is distinct from 'redfish' or n.enrolled_at is not null) and exists (
    select from allocations a where a.node_id = n.id and a.state = 'active'
        and (a.health is null or a.health_cause = 'guest_unreachable'))
order by n.id limit :limit
"""
_LOCK_NODE = """
select n.online or coalesce(n.driver = 'redfish', false) and n.enrolled_at is null as online from nodes n
where n.id = :node_id for no key update
"""


def deadlines_of(context: Context) -> HealthDeadlines:
    """The deadlines by the operator's settings."""
    return HealthDeadlines(context.limits.lost_after_seconds, context.limits.lost_release_seconds)


@dataclass(frozen=True, slots=True)
class _Change:
    row: Row[Any]
    to: Condition


async def note_inventory(
    tx: Transaction, node_id: UUID, inventory: HeldInventory, proof: datetime, deadlines: HealthDeadlines
) -> list[str]:
    """Change the health of the node by a complete inventory; return the changes. `proof` is of those healthy so far.

    What it says of first boots is recorded as well.
    """
    held = json.dumps(inventory.model_dump(mode="json")["allocations"])
    values = {"node_id": node_id, "held": held, "after": inventory.gathered_after}
    rows = (await tx.execute(_DIFFERENT, values)).all()
    await note_first_boots(tx, rows, inventory)
    changes = [_Change(row, to) for row in rows if (sight := _sight_of(row)) and (to := _after(row, sight))]
    return await _change(tx, changes, proof, deadlines)


async def note_silence(tx: Transaction, node_id: UUID, deadlines: HealthDeadlines) -> list[str]:
    """Every allocation of the silent node whose guest ran until now becomes degraded; return the changes."""
    proof = (await tx.execute(_LAST_SEEN, {"node_id": node_id})).scalar_one()
    rows = (await tx.execute(_HEALTHY_OF_NODE, {"node_id": node_id})).all()
    changes = [_Change(row, to) for row in rows if (to := _after(row, Sight.SILENT))]
    return await _change(tx, changes, proof, deadlines)


async def lock_offline_node(tx: Transaction, node_id: UUID) -> bool:
    """Lock the node; return whether it is offline."""
    online: bool | None = (await tx.execute(_LOCK_NODE, {"node_id": node_id})).scalar()
    return online is False


async def pass_deadline(tx: Transaction, allocation_id: UUID, deadlines: HealthDeadlines) -> Health | None:
    """Make a degraded allocation lost whose deadline has passed. Return `lost` if it was lost before: it is to be released.

    None: its deadline has not passed. The caller holds the locks of node and allocation.
    """
    row = (await tx.execute(_PAST_DEADLINE, {"id": allocation_id})).first()
    if row is None:
        return None
    to = condition_after_deadline(_condition(row))
    if to is None:
        return Health.LOST
    await _change(tx, [_Change(row, to)], None, deadlines)
    return Health.DEGRADED


async def find_past_deadline(reading: Reading, limit: int) -> list[UUID]:
    """Unhealthy allocations whose deadline has passed, the earliest first."""
    return list((await reading.execute(_DUE, {"limit": limit})).scalars())


async def find_unnoticed_nodes(reading: Reading, limit: int) -> list[UUID]:
    """Offline nodes with allocations whose guests count as running."""
    return list((await reading.execute(_UNNOTICED, {"limit": limit})).scalars())


async def _change(
    tx: Transaction, changes: Iterable[_Change], proof: datetime | None, deadlines: HealthDeadlines
) -> list[str]:
    listed = [
        {
            "id": str(change.row.id),
            "health": None if change.to is HEALTHY else change.to.health,
            "cause": change.to.cause,
            "wait_seconds": deadlines.seconds_of(change.to),
            "fence": change.row.fence,
        }
        for change in changes
    ]
    if not listed:
        return []
    return list((await tx.execute(_CHANGE, {"changes": json.dumps(listed), "proof": proof})).scalars())


def _condition(row: Row[Any]) -> Condition:
    return HEALTHY if row.health is None else Condition(Health(row.health), OutageCause(row.health_cause))


def _after(row: Row[Any], sight: Sight) -> Condition | None:
    return condition_after(_condition(row), sight)


def _sight_of(row: Row[Any]) -> Sight | None:
    """What the inventory says of the allocation; None for a guest on its way up or down."""
    if not row.is_named:
        return Sight.GONE
    if row.reported in (GuestReport.DOWN, GuestReport.ENDED, GuestReport.UNREACHABLE):
        return Sight(row.reported)
    if row.reported is None:
        # An agent of the version before names what it holds, and nothing of its state: only its silence has ended.
        return Sight.ALIVE if row.health_cause == OutageCause.NODE_SILENT else None
    return Sight.ALIVE
