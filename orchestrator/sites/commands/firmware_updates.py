"""Begin and conclude updates of firmware in maintenance windows: the worker's commands."""

from __future__ import annotations

from uuid import UUID

from node_agent.wire.sites import BmcTaskKind
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.maintenance.states import WindowState, WindowTaskState
from orchestrator.nodes.deploy_systems import run_store, task_store
from orchestrator.nodes.maintenance_tasks.ending import MAINTENANCE, end_task, why_late
from orchestrator.nodes.maintenance_tasks.rules import Verdict
from orchestrator.nodes.states import NodeState
from orchestrator.nodes.store import maintenance_tasks, nodes
from orchestrator.nodes.store.maintenance_tasks import OpenTask
from orchestrator.operations.execution import Context, transact
from orchestrator.sites.firmware import note_updated
from orchestrator.sites.rules import REQUEST_SECONDS_MAX
from orchestrator.sites.store import bmc_tasks, bmcs, firmware_updates
from orchestrator.sites.updating.rules import conclude


async def advance_firmware_update(context: Context, window_id: UUID, node_id: UUID) -> WindowTaskState | None:
    """Begin the update of a window on a node, or conclude it, evaluated after the locks; return its new state.

    It begins as any task of a window does, and only while neither a run nor a task of the BMC or a deploy system is open. The
    versions that a completed one has read are those which the next release compares with. None: there is nothing to do yet.
    """

    async def work(tx: Transaction) -> WindowTaskState | None:
        await nodes.lock_node(tx, node_id)
        known = await maintenance_tasks.lock_task(tx, window_id, node_id)
        if known is None:
            return None
        bmc = await bmcs.lock_bmc(tx, node_id)
        if known.state is WindowTaskState.RUNNING:
            if await bmc_tasks.lock_open(tx, node_id) is not None:
                return None
            return await _conclude(tx, window_id, node_id, known)
        if known.window_state is WindowState.SCHEDULED:
            return None
        is_busy = await _is_busy(tx, node_id)
        why = _why_never(known, is_busy=is_busy, has_bmc=bmc is not None)
        if why is not None:
            return await end_task(tx, window_id, node_id, known, Verdict(WindowTaskState.NOT_RUN, why))
        if known.obstacle is not None or is_busy or bmc is None:
            return None
        by = f"{MAINTENANCE.kind.value}:{MAINTENANCE.id}"
        task = await bmc_tasks.request_task(tx, node_id, bmc.site_id, BmcTaskKind.FIRMWARE, by, REQUEST_SECONDS_MAX)
        await firmware_updates.note_begun(tx, window_id, node_id, known.clock, task.id, known.seconds_max)
        said = {"node_id": str(node_id), "kind": known.kind.value, "plugin": None, "task_id": str(task.id)}
        await audit.record(tx, MAINTENANCE, "maintenance.task_begin", f"maintenance/{window_id}", said, None)
        return WindowTaskState.RUNNING

    return await transact(context, work)


async def _is_busy(tx: Transaction, node_id: UUID) -> bool:
    """Whether something works through the BMC of the locked node, or in a deploy system on its machine."""
    return (
        await bmc_tasks.lock_open(tx, node_id) is not None
        or await run_store.is_open(tx, node_id)
        or await task_store.find_open_of(tx, node_id) is not None
    )


def _why_never(known: OpenTask, *, is_busy: bool, has_bmc: bool) -> str | None:
    """Why an update that waits does not begin any more: a code, and what was found."""
    if known.window_state is not WindowState.ACTIVE:
        return f"window_{known.window_state}: the window was {known.window_state} before the task began"
    if known.node_state is NodeState.RETIRED:
        return "node_retired: the node is retired"
    if not has_bmc:
        return "no_bmc: the node has no BMC any more"
    if (known.ends_at - known.clock).total_seconds() >= known.seconds_max:
        return None
    if known.obstacle is None and is_busy:
        return (
            "node_busy: a run, or a task of the BMC or of a deploy system, was open until the window had less than the"
            f" {known.seconds_max} s left that the task may take"
        )
    return why_late(known)


async def _conclude(tx: Transaction, window_id: UUID, node_id: UUID, known: OpenTask) -> WindowTaskState:
    ended = await firmware_updates.read_running(tx, window_id, node_id)
    verdict = conclude(ended)
    if verdict.state is WindowTaskState.COMPLETED and ended.result is not None:
        await note_updated(tx, node_id, ended.result)
    return await end_task(tx, window_id, node_id, known, verdict)
