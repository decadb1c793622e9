"""Tasks about BMCs: signed when requested, ended without a report; liveness of nodes without an agent; gauges of sites."""

from __future__ import annotations

import structlog

from orchestrator.maintenance.states import WindowTaskState
from orchestrator.operations.execution import Context
from orchestrator.sites.commands.firmware_updates import advance_firmware_update
from orchestrator.sites.commands.liveness import turn_node
from orchestrator.sites.commands.tasks import Advanced, advance_bmc_task
from orchestrator.sites.queries import find_bmc_tasks_to_advance, find_open_updates, find_turned_nodes, take_site_census
from worker.metrics import SITE_LEASES, SITE_MACHINES, SITE_TASKS
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_every_failure, isolate_failure

log = structlog.get_logger()


async def sweep_bmc_tasks(context: Context, limit: int) -> None:
    """Sign or end at most `limit` tasks of each."""
    for task_id in await find_bmc_tasks_to_advance(context, limit):
        with isolate_failure("bmc_tasks", task_id=str(task_id)):
            if (advanced := await advance_bmc_task(context, task_id)) is not None:
                SWEPT.labels(f"bmc_task_{advanced}").inc()
                write = log.info if advanced is Advanced.ISSUED else log.warning
                write(f"bmc_task_{advanced}", task_id=str(task_id))


async def sweep_firmware_updates(context: Context, limit: int) -> None:
    """Begin or conclude at most `limit` updates of maintenance windows, those of the earliest windows first, each alone."""
    for window_id, node_id in await find_open_updates(context, limit):
        with isolate_every_failure("firmware_updates", window_id=str(window_id), node_id=str(node_id)):
            if (state := await advance_firmware_update(context, window_id, node_id)) is not None:
                SWEPT.labels(f"maintenance_task_{state}").inc()
                fine = state in (WindowTaskState.RUNNING, WindowTaskState.COMPLETED)
                write = log.info if fine else log.warning
                write(f"maintenance_task_{state}", window_id=str(window_id), node_id=str(node_id), kind="firmware")


async def sweep_bmc_liveness(context: Context, silent_seconds: float, limit: int) -> None:
    """Set at most `limit` nodes without an agent online or offline, by whether their BMC answered within `silent_seconds`."""
    for node_id in await find_turned_nodes(context, silent_seconds, limit):
        with isolate_failure("bmc_liveness", node_id=str(node_id)):
            is_online = await turn_node(context, node_id, silent_seconds)
            if is_online is None:
                continue
            SWEPT.labels("bmc_answers" if is_online else "bmc_silent").inc()
            if is_online:
                log.info("bmc_answers", node_id=str(node_id))
            else:
                log.warning("bmc_silent", node_id=str(node_id), silent_seconds=silent_seconds)


async def measure_sites(context: Context) -> None:
    """Set the gauges of each site; a site that was removed disappears."""
    census = await take_site_census(context)
    for gauge in (SITE_LEASES, SITE_MACHINES, SITE_TASKS):
        gauge.clear()
    for site in census:
        SITE_LEASES.labels(site.name).set(int(site.is_held))
        SITE_MACHINES.labels(site.name).set(site.machines)
        SITE_TASKS.labels(site.name).set(site.open_tasks)
