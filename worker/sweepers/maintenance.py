"""Maintenance windows with their tasks, and drains of nodes: what happens at their times, and windows past their retention."""

from __future__ import annotations

import structlog

from orchestrator.maintenance.commands.advance import advance_window, retire_windows
from orchestrator.maintenance.queries import find_due_windows
from orchestrator.maintenance.states import WindowTaskState
from orchestrator.nodes.commands.drains import Advanced, advance_drain, release_for_drain
from orchestrator.nodes.commands.maintenance_tasks import advance_task
from orchestrator.nodes.drains.queries import find_allocations_to_release, find_due_drains
from orchestrator.nodes.maintenance_tasks.queries import find_open_tasks
from orchestrator.nodes.probes.thresholds import Overrides
from orchestrator.operations.execution import Context
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_every_failure, isolate_failure

log = structlog.get_logger()


async def sweep_maintenance(context: Context, retention_seconds: float, limit: int) -> None:
    """Start or end at most `limit` windows, the earliest first, each alone; delete at most `limit` ended ones."""
    for window_id in await find_due_windows(context.database, limit):
        with isolate_failure("maintenance", window_id=str(window_id)):
            state = await advance_window(context, window_id)
            if state is not None:
                SWEPT.labels(f"maintenance_{state}").inc()
                log.info(f"maintenance_{state}", window_id=str(window_id))
    SWEPT.labels("maintenance").inc(await retire_windows(context, retention_seconds, limit))


async def sweep_maintenance_tasks(context: Context, thresholds: Overrides, limit: int) -> None:
    """Begin or conclude at most `limit` tasks of windows, those of the earliest windows first, each alone."""
    for window_id, node_id in await find_open_tasks(context, limit):
        with isolate_every_failure("maintenance_tasks", window_id=str(window_id), node_id=str(node_id)):
            if (state := await advance_task(context, window_id, node_id, thresholds)) is not None:
                SWEPT.labels(f"maintenance_task_{state}").inc()
                fine = state in (WindowTaskState.RUNNING, WindowTaskState.COMPLETED)
                write = log.info if fine else log.warning
                write(f"maintenance_task_{state}", window_id=str(window_id), node_id=str(node_id))


class DrainSweeper:
    """Announces at most `limit` drains a run, then releases at most `limit` allocations, each in its own transaction.

    Releases are ordered in turns, so that those which fail do not keep the others from being released.
    """

    def __init__(self, context: Context, limit: int) -> None:
        self._context = context
        self._limit = limit
        self._released_to = 0

    async def run(self) -> None:
        """Announce, then release."""
        await self._announce()
        found = await find_allocations_to_release(self._context, self._released_to, self._limit)
        self._released_to = found[-1].claim_id if len(found) == self._limit else 0
        for one in found:
            with isolate_failure("drains", allocation_id=str(one.allocation_id)):
                if await release_for_drain(self._context, one.node_id, one.allocation_id):
                    SWEPT.labels("drain_released").inc()
                    log.info("released_for_drain", node_id=str(one.node_id), allocation_id=str(one.allocation_id))

    async def _announce(self) -> None:
        for node_id in await find_due_drains(self._context, self._limit):
            with isolate_failure("drains", node_id=str(node_id)):
                if (advanced := await advance_drain(self._context, node_id)) is not None:
                    SWEPT.labels(f"drain_{advanced}").inc()
                    write = log.warning if advanced is Advanced.OVERDUE else log.info
                    write(f"node_drain_{advanced}", node_id=str(node_id))
