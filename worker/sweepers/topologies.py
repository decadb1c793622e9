"""Discovery of nodes: issued when due, and taken in when its task has ended."""

from __future__ import annotations

import structlog

from orchestrator.nodes.commands.topologies import issue_discovery, take_discovery
from orchestrator.nodes.topology.judging import Taken
from orchestrator.nodes.topology.queries import count_topologies, find_due_nodes, find_ended_discoveries
from orchestrator.operations.execution import Context
from worker.metrics import NODE_TOPOLOGIES
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_failure

log = structlog.get_logger()


async def sweep_topologies(context: Context, interval_seconds: float, limit: int) -> None:
    """Take in at most `limit` ended discoveries, issue at most `limit` due ones, and set the gauges."""
    for node_id in await find_ended_discoveries(context, limit):
        with isolate_failure("topologies", node_id=str(node_id)):
            if (taken := await take_discovery(context, node_id)) is not None:
                SWEPT.labels(f"topology_{taken}").inc()
                write = log.warning if taken in (Taken.DRIFTED, Taken.FAILED) else log.info
                write(f"topology_{taken}", node_id=str(node_id))
    for node_id in await find_due_nodes(context, limit):
        with isolate_failure("topologies", node_id=str(node_id)):
            if (task_id := await issue_discovery(context, node_id, interval_seconds)) is not None:
                log.info("discovery_issued", node_id=str(node_id), task_id=str(task_id))
    for state, count in (await count_topologies(context)).items():
        NODE_TOPOLOGIES.labels(state).set(count)
