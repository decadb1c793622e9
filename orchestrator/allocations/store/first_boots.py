"""SQL that records the first boot of guests: with timeline entry and event in the transaction of the heartbeat that reports it.

The caller holds the lock of the node, which every other change of its allocations takes first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row

from node_agent.protocol import HeldInventory
from node_agent.wire.first_boot import FirstBootStatus
from orchestrator.allocations.first_boot import first_boot_after, is_announced
from orchestrator.database.transactions import Transaction

_CHANGE = """
with at as materialized (select clock_timestamp() as now),
changes as (
    select * from jsonb_to_recordset(cast(:changes as jsonb))
        as c(id uuid, status text, detail text, fence bigint, is_announced boolean)
), moved as (
    update allocations a set
        row_version = a.row_version + 1, first_boot = c.status, first_boot_detail = c.detail, first_boot_since = at.now
    from changes c, at where a.id = c.id and a.state = 'active'
    returning a.id, a.tenant_id, a.correlation_id, c.status, c.detail, c.fence, c.is_announced
), noted as (
    insert into allocation_timeline (allocation_id, at, kind, code, detail, actor_kind, actor_id, fence)
    select m.id, at.now, 'note', 'first_boot_ended', concat_ws(': ', m.status, m.detail), 'system', 'first_boot', m.fence
    from moved m, at where m.is_announced
)
insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, payload)
select 'allocation.first_boot_ended', at.now, m.correlation_id, m.tenant_id, 'allocations/' || m.id, jsonb_build_object(
    'allocation_id', m.id, 'status', m.status, 'detail', m.detail, 'ended_at', rfc3339(at.now), 'fence', m.fence)
from moved m, at where m.is_announced order by m.id
"""


async def note_first_boots(tx: Transaction, rows: Sequence[Row[Any]], inventory: HeldInventory) -> None:
    """Record what the inventory says of first boots. `rows`: `id`, `first_boot` and `fence` of active allocations of its node."""
    reported = {held.allocation_id: held.first_boot for held in inventory.allocations}
    changes = []
    for row in rows:
        found = reported.get(row.id)
        now = None if row.first_boot is None else FirstBootStatus(row.first_boot)
        if found is None or (status := first_boot_after(now, found.status)) is None:
            continue
        change = {"id": str(row.id), "status": status, "detail": found.detail, "fence": row.fence}
        changes.append({**change, "is_announced": is_announced(status)})
    if changes:
        await tx.execute(_CHANGE, {"changes": json.dumps(changes)})
