"""Nodes that fell silent get no new allocations."""

from __future__ import annotations

import structlog

from orchestrator.nodes.commands.heartbeat import mark_node_offline
from orchestrator.nodes.queries import find_silent_nodes
from orchestrator.operations.execution import Context
from worker.metrics import SWEPT

log = structlog.get_logger()


async def sweep_silent_nodes(context: Context, silent_seconds: float, limit: int) -> None:
    """Mark offline whoever has not been heard of for `silent_seconds`, the longest silent first."""
    for node_id in await find_silent_nodes(context, silent_seconds, limit):
        if await mark_node_offline(context, node_id, silent_seconds):
            SWEPT.labels("node_offline").inc()
            log.warning("node_offline", node_id=str(node_id), silent_seconds=silent_seconds)
