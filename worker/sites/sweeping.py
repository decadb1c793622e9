"""Tasks about BMCs: signed when an operator has requested them, ended without a report; and the gauges of sites."""

from __future__ import annotations

import structlog

from orchestrator.operations.execution import Context
from orchestrator.sites.commands.tasks import Advanced, advance_bmc_task
from orchestrator.sites.queries import find_bmc_tasks_to_advance, take_site_census
from worker.metrics import SITE_LEASES, SITE_MACHINES, SITE_TASKS
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_failure

log = structlog.get_logger()


async def sweep_bmc_tasks(context: Context, limit: int) -> None:
    """Sign or end at most `limit` tasks of each."""
    for task_id in await find_bmc_tasks_to_advance(context, limit):
        with isolate_failure("bmc_tasks", task_id=str(task_id)):
            if (advanced := await advance_bmc_task(context, task_id)) is not None:
                SWEPT.labels(f"bmc_task_{advanced}").inc()
                write = log.info if advanced is Advanced.ISSUED else log.warning
                write(f"bmc_task_{advanced}", task_id=str(task_id))


async def measure_sites(context: Context) -> None:
    """Set the gauges of each site; a site that was removed disappears."""
    census = await take_site_census(context)
    for gauge in (SITE_LEASES, SITE_MACHINES, SITE_TASKS):
        gauge.clear()
    for site in census:
        SITE_LEASES.labels(site.name).set(int(site.is_held))
        SITE_MACHINES.labels(site.name).set(site.machines)
        SITE_TASKS.labels(site.name).set(site.open_tasks)
