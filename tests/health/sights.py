"""Heartbeats that say how guests are, and what the control plane then holds of their health."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Any

from node_agent.protocol import Heartbeat, HeldAllocation, HeldInventory
from node_agent.wire.guests import GuestReport
from orchestrator.nodes.commands.heartbeat import record_heartbeat
from orchestrator.operations.execution import Context
from tests.allocations.driving import allocation_of, rows_of
from tests.allocations.seeding import connect

SILENT_SECONDS = 30.0


async def contact(context: Context, node_id: uuid.UUID) -> datetime:
    """A heartbeat without inventory; the server's time."""
    beat = Heartbeat(agent_version="1", driver="noop", allocations=[])
    return (await record_heartbeat(context, node_id, beat, sandbox_allowed=True)).server_time


async def see(
    context: Context, node_id: uuid.UUID, *held: tuple[uuid.UUID, GuestReport | None], after: datetime | None = None
) -> datetime:
    """A heartbeat with a complete inventory; the time after which it was gathered."""
    told = after or await contact(context, node_id)
    named = [HeldAllocation(allocation_id=a, slots=[0], fence=7, state=state) for a, state in held]
    inventory = HeldInventory(gathered_after=told, allocations=named)
    beat = Heartbeat(agent_version="1", driver="noop", allocations=[], inventory=inventory)
    await record_heartbeat(context, node_id, beat, sandbox_allowed=True)
    return told


def fall_silent(url: str, node_id: uuid.UUID) -> None:
    """The node's last heartbeat and inventory become older than the bound."""
    ago = timedelta(seconds=SILENT_SECONDS + 5)
    with connect(url) as database:
        database.execute(
            "update nodes set last_seen_at = clock_timestamp() - %s,"
            " inventory_after = inventory_after - %s where id = %s",
            (ago, ago, node_id),
        )


def pass_time(url: str, allocation_id: uuid.UUID) -> None:
    """The deadline of the allocation's health has come."""
    with connect(url) as database:
        database.execute(
            "update allocations set health_until = clock_timestamp() where id = %s and health_until is not null",
            (allocation_id,),
        )


def health_of(url: str, allocation_id: uuid.UUID) -> tuple[Any, Any]:
    """Health and cause as stored."""
    row = allocation_of(url, allocation_id)
    return row["health"], row["health_cause"]


def health_events(url: str, allocation_id: uuid.UUID) -> list[str]:
    """The health events of the allocation so far, in order, without their prefix."""
    kinds = ["allocation.degraded", "allocation.lost", "allocation.recovered"]
    found = rows_of(
        url,
        "select event_type from outbox where event_type = any(%s) and subject = %s order by id",
        kinds,
        f"allocations/{allocation_id}",
    )
    return [row[0].removeprefix("allocation.") for row in found]
