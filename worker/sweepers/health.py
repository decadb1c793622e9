"""Allocations without service: those of offline nodes become degraded, degraded ones lost, and lost ones are released."""

from __future__ import annotations

import structlog

from orchestrator.allocations.commands.health import degrade_unnoticed, pass_health_deadline
from orchestrator.allocations.queries import find_past_health_deadline, find_unnoticed_nodes
from orchestrator.operations.execution import Context
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_failure

log = structlog.get_logger()


async def sweep_health(context: Context, limit: int) -> None:
    """Handle at most `limit` offline nodes and `limit` allocations past a deadline of their health, the earliest first."""
    for node_id in await find_unnoticed_nodes(context, limit):
        with isolate_failure("health", node_id=str(node_id)):
            if found := await degrade_unnoticed(context, node_id):
                SWEPT.labels("allocation_degraded").inc(found)
                log.warning("allocations_degraded", node_id=str(node_id), allocations=found)
    for allocation_id in await find_past_health_deadline(context, limit):
        with isolate_failure("health", allocation_id=str(allocation_id)):
            if (change := await pass_health_deadline(context, allocation_id)) is not None:
                SWEPT.labels(f"allocation_{change}_by_health").inc()
                log.warning(f"allocation_{change}_by_health", allocation_id=str(allocation_id))
