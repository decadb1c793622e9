"""Heartbeats that say how the first boot of a guest is, and what the control plane then shows of it."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from node_agent.protocol import Heartbeat, HeldAllocation, HeldInventory
from node_agent.wire.first_boot import FirstBoot, FirstBootStatus
from node_agent.wire.guests import GuestReport
from orchestrator.allocations.queries import find_allocation
from orchestrator.nodes.commands.heartbeat import record_heartbeat
from orchestrator.operations.execution import Context
from tests.allocations.driving import rows_of
from tests.health.sights import contact


async def see(
    context: Context,
    node_id: uuid.UUID,
    allocation_id: uuid.UUID,
    status: FirstBootStatus | None,
    detail: str | None = None,
    after: datetime | None = None,
) -> None:
    """A heartbeat with a complete inventory that names one guest."""
    gathered_after = after or await contact(context, node_id)
    first_boot = None if status is None else FirstBoot(status=status, detail=detail)
    held = HeldAllocation(
        allocation_id=allocation_id, slots=[0], fence=7, state=GuestReport.RUNNING, first_boot=first_boot
    )
    inventory = HeldInventory(gathered_after=gathered_after, allocations=[held])
    beat = Heartbeat(agent_version="1", driver="noop", allocations=[], inventory=inventory)
    await record_heartbeat(context, node_id, beat, sandbox_allowed=True)


async def shown(context: Context, allocation_id: uuid.UUID) -> tuple[Any, Any]:
    """What the tenant reads: the status and its detail."""
    guest = (await find_allocation(context.database, allocation_id, None))["guest"]
    assert (guest["first_boot"]["since"] is None) is (guest["first_boot"]["status"] == "unknown")
    return guest["first_boot"]["status"], guest["first_boot"]["detail"]


def events(url: str, allocation_id: uuid.UUID) -> list[tuple[Any, Any]]:
    """Status and detail of each event of a first boot, in order."""
    return [
        tuple(row)
        for row in rows_of(
            url,
            "select payload ->> 'status', payload ->> 'detail' from outbox"
            " where event_type = 'allocation.first_boot_ended' and subject = %s order by id",
            f"allocations/{allocation_id}",
        )
    ]
