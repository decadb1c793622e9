"""Heartbeats with inventories, one round of the reconciler, and the orphans afterwards."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from node_agent.protocol import Heartbeat, HeldAllocation, HeldInventory
from orchestrator.allocations.commands.absences import end_absence, note_absence
from orchestrator.nodes.commands.heartbeat import record_heartbeat
from orchestrator.nodes.commands.orphan_progress import advance_orphan
from orchestrator.nodes.commands.orphans import report_orphan
from orchestrator.nodes.inventory_queries import compare_inventories, find_actionable_orphans
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Operation
from tests.allocations.driving import clean_up, provision, release, row_of, rows_of
from tests.allocations.invariants import violations
from tests.allocations.seeding import Seeded
from tests.verifying import broken_promises

EVERYTHING = uuid.UUID(int=0)


def admin_operation() -> Operation:
    """An admin's write under a new key."""
    return Operation(uuid.uuid4(), uuid.uuid4().hex, b"\0" * 32, 3600.0)


async def beat(
    context: Context, node_id: uuid.UUID, *held: tuple[uuid.UUID, list[int]] | None, after: datetime | None = None
) -> datetime:
    """A heartbeat as an agent sends it; returns the server's time. `held` None: no inventory. `after` None: the server's time."""
    inventory = None
    if None not in held:
        named = [HeldAllocation(allocation_id=a, slots=s, fence=7) for a, s in held if (a, s)]  # type: ignore[misc]
        told = after or await beat(context, node_id, None)
        inventory = HeldInventory(gathered_after=told, allocations=named)
    heartbeat = Heartbeat(agent_version="1", driver="noop", allocations=[], inventory=inventory)
    return (await record_heartbeat(context, node_id, heartbeat, sandbox_allowed=True)).server_time


async def reconcile(context: Context) -> list[uuid.UUID]:
    """One round of the reconciler's; the orphans it found."""
    found = await compare_inventories(context, EVERYTHING, nodes_max=10, refresh_seconds=0, limit=10)
    reported = [await report_orphan(context, one.node_id, one.allocation_id) for one in found.unexplained]
    for missed in found.missed:
        await note_absence(context, missed, 3)
    for over in found.over:
        await end_absence(context, over)
    for orphan in await find_actionable_orphans(context, 10):
        await advance_orphan(context, orphan)
    return [orphan for orphan in reported if orphan is not None]


def orphan_task(url: str) -> dict[str, Any]:
    """The row of the task issued last for an orphan."""
    return row_of(url, "select * from node_tasks where orphan_id is not null order by fence desc limit 1")


def slots_out_of_service(url: str) -> list[int]:
    """Indexes of slots out of service."""
    return [row[0] for row in rows_of(url, "select slot_index from slots where state <> 'in_service' order by 1")]


def kept(url: str) -> list[str]:
    """What berth verify finds, besides what needs the relay."""
    return [str(broken) for broken in (*violations(url), *broken_promises(url).items())]


async def end(context: Context, url: str, seeded: Seeded, allocation_id: uuid.UUID) -> None:
    """From requested to released, proven."""
    await provision(context, url, allocation_id)
    await release(context, seeded, allocation_id)
    await clean_up(context, url, allocation_id)
