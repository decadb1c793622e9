"""Health probes of nodes: issued when due, and taken in when their task has ended."""

from __future__ import annotations

import structlog

from orchestrator.nodes.commands.probes import ProbePolicy, Taken, issue_probe, take_probe
from orchestrator.nodes.probes.queries import count_health, find_due_probes, find_ended_probes
from orchestrator.operations.execution import Context
from worker.metrics import NODE_HEALTH
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_failure

log = structlog.get_logger()


async def sweep_probes(context: Context, policy: ProbePolicy, limit: int) -> None:
    """Take in at most `limit` ended probes, issue at most `limit` due ones, and set the gauges."""
    for node_id in await find_ended_probes(context, limit):
        with isolate_failure("probes", node_id=str(node_id)):
            if (taken := await take_probe(context, node_id, policy)) is not None:
                SWEPT.labels(f"probe_{taken}").inc()
                write = log.info if taken is Taken.HEALTHY else log.warning
                write(f"probe_{taken}", node_id=str(node_id))
    for node_id in await find_due_probes(context, limit):
        with isolate_failure("probes", node_id=str(node_id)):
            if (task_id := await issue_probe(context, node_id, policy.interval_seconds)) is not None:
                log.info("probe_issued", node_id=str(node_id), task_id=str(task_id))
    for state, count in (await count_health(context)).items():
        NODE_HEALTH.labels(state).set(count)
