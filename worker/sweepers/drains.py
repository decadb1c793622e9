"""Drains of nodes: announced when they are complete or overdue, and allocations that they release."""

from __future__ import annotations

import structlog

from orchestrator.nodes.commands.drains import Advanced, advance_drain, release_for_drain
from orchestrator.nodes.drains.queries import find_allocations_to_release, find_due_drains
from orchestrator.operations.execution import Context
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_failure

log = structlog.get_logger()


async def sweep_drains(context: Context, limit: int) -> None:
    """Announce at most `limit` drains, then release at most `limit` allocations, each alone."""
    for node_id in await find_due_drains(context, limit):
        with isolate_failure("drains", node_id=str(node_id)):
            if (advanced := await advance_drain(context, node_id)) is not None:
                SWEPT.labels(f"drain_{advanced}").inc()
                write = log.warning if advanced is Advanced.OVERDUE else log.info
                write(f"node_drain_{advanced}", node_id=str(node_id))
    for node_id, allocation_id in await find_allocations_to_release(context, limit):
        with isolate_failure("drains", allocation_id=str(allocation_id)):
            if await release_for_drain(context, node_id, allocation_id):
                SWEPT.labels("drain_released").inc()
                log.info("released_for_drain", node_id=str(node_id), allocation_id=str(allocation_id))
