"""Tasks of deploy systems: signed once the system has said hello, and concluded when they are over; and runs, step by step."""

from __future__ import annotations

import structlog

from orchestrator.nodes.commands.deploy_tasks import Advanced, advance_deploy_task
from orchestrator.nodes.deploy_systems.queries import find_open_deploy_tasks
from orchestrator.nodes.deploy_systems.run_rules import Move
from orchestrator.operations.execution import Context
from orchestrator.sites.commands.runs import advance_run
from orchestrator.sites.queries import find_runs_to_advance
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_failure

log = structlog.get_logger()


async def sweep_deploy_tasks(context: Context, limit: int) -> None:
    """Sign or conclude at most `limit` tasks."""
    for node_id in await find_open_deploy_tasks(context, limit):
        with isolate_failure("deploy_tasks", node_id=str(node_id)):
            if (advanced := await advance_deploy_task(context, node_id)) is not None:
                SWEPT.labels(f"deploy_task_{advanced}").inc()
                write = log.warning if advanced in (Advanced.FAILED, Advanced.NOT_RUN) else log.info
                write(f"deploy_task_{advanced}", node_id=str(node_id))


async def sweep_deploy_runs(context: Context, limit: int) -> None:
    """Move at most `limit` runs by one step, and open as many that allocations wait for."""
    for node_id in await find_runs_to_advance(context, limit):
        with isolate_failure("deploy_runs", node_id=str(node_id)):
            if (move := await advance_run(context, node_id)) is not None:
                SWEPT.labels(f"deploy_run_{move}").inc()
                write = log.warning if move is Move.QUARANTINE else log.info
                write(f"deploy_run_{move}", node_id=str(node_id))
