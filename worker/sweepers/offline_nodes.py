"""Nodes without a recent heartbeat are marked offline, so that they receive no new allocations."""

from __future__ import annotations

import structlog

from orchestrator.nodes.commands.heartbeat import mark_node_offline
from orchestrator.nodes.queries import find_silent_nodes
from orchestrator.operations.execution import Context
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_failure

log = structlog.get_logger()


async def mark_silent_nodes_offline(context: Context, silent_seconds: float, limit: int) -> None:
    """Mark at most `limit` nodes offline that sent no heartbeat for `silent_seconds`, the longest silent first."""
    for node_id in await find_silent_nodes(context, silent_seconds, limit):
        with isolate_failure("offline_nodes", node_id=str(node_id)):
            if await mark_node_offline(context, node_id, silent_seconds):
                SWEPT.labels("node_offline").inc()
                log.warning("node_offline", node_id=str(node_id), silent_seconds=silent_seconds)
