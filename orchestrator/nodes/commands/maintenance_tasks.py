"""Begin and conclude the tasks of maintenance windows: the worker's commands."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from pydantic import BaseModel

from node_agent.wire.burn_in import BurnInParameters
from node_agent.wire.gpu_reset import GpuResetParameters
from node_agent.wire.layout import layout_of
from node_agent.wire.maintenance import MaintenancePluginParameters
from node_agent.wire.topology import Topology
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.maintenance.states import TaskKind, WindowState, WindowTaskState
from orchestrator.maintenance.window_tasks import FEATURES
from orchestrator.nodes.gpu_resets.rules import Group
from orchestrator.nodes.maintenance_tasks.ending import MAINTENANCE, end_task, why_late
from orchestrator.nodes.maintenance_tasks.rules import (
    EndedTask,
    HealthLimits,
    Verdict,
    conclude,
    whole_group,
)
from orchestrator.nodes.probes.rules import Machine
from orchestrator.nodes.probes.thresholds import Overrides, thresholds_for
from orchestrator.nodes.states import NodeState
from orchestrator.nodes.store import maintenance_tasks as store
from orchestrator.nodes.store import nodes
from orchestrator.nodes.store.maintenance_tasks import OpenTask
from orchestrator.operations.execution import Context, transact
from orchestrator.tasks.states import TaskState


async def advance_task(
    context: Context, window_id: UUID, node_id: UUID, thresholds: Overrides
) -> WindowTaskState | None:
    """Begin the task of a window on a node, or conclude it, evaluated after the locks; return its new state.

    It begins once, when the window is active and holds all of its units of the node, and the node is reachable; otherwise it is
    `not_run` when it could not end within the window any more. The slots of one that began and did not complete are in quarantine
    from the commit on. None: there is nothing to do yet.
    """

    async def work(tx: Transaction) -> WindowTaskState | None:
        assert context.signer is not None, "only processes with a signing key issue tasks"
        await nodes.lock_node(tx, node_id)
        known = await store.lock_task(tx, window_id, node_id)
        if known is None:
            return None
        if known.state is WindowTaskState.RUNNING:
            if known.task_state in (TaskState.QUEUED, TaskState.DISPATCHED):
                return None
            return await end_task(tx, window_id, node_id, known, _verdict(known, thresholds))
        if known.window_state is WindowState.SCHEDULED:
            return None
        why = _why_never(known)
        if why is not None:
            return await end_task(tx, window_id, node_id, known, Verdict(WindowTaskState.NOT_RUN, why))
        if known.obstacle is not None:
            return None
        task_id = await store.begin(tx, context.signer, window_id, node_id, known, _parameters(known))
        said = {"node_id": str(node_id), "kind": known.kind.value, "plugin": known.plugin, "task_id": str(task_id)}
        await audit.record(tx, MAINTENANCE, "maintenance.task_begin", f"maintenance/{window_id}", said, None)
        return WindowTaskState.RUNNING

    return await transact(context, work)


def _why_never(known: OpenTask) -> str | None:
    """Why a task that waits does not begin any more: a code, and what was found."""
    if known.window_state is not WindowState.ACTIVE:
        return f"window_{known.window_state}: the window was {known.window_state} before the task began"
    if known.node_state is NodeState.RETIRED:
        return "node_retired: the node is retired"
    if (known.ends_at - known.clock).total_seconds() < known.seconds_max:
        return why_late(known)
    if known.obstacle == "offline":
        return None
    feature = FEATURES.get(known.kind)
    if feature is not None and feature not in known.features:
        return f"task_unsupported: the node's agent (version {known.agent_version}) does not know the task any more"
    if known.kind is TaskKind.GPU_RESET and isinstance(group := _group(known), str):
        return group
    return None


def _group(known: OpenTask) -> Group | str:
    found = None if known.found is None else Topology.model_validate(known.found)
    approved = None if known.approved is None else Topology.model_validate(known.approved)
    return whole_group(found, approved, known.slot_count, known.slots)


def _parameters(known: OpenTask) -> BaseModel | None:
    if known.kind is TaskKind.PLUGIN:
        assert known.plugin is not None, "the task `plugin` names one"
        return MaintenancePluginParameters(plugin=known.plugin, slots=known.slots)
    if known.kind is TaskKind.BURN_IN:
        addresses = _addresses(known)
        gpus = [addresses[slot] for slot in known.slots] if addresses else []
        return BurnInParameters(slots=known.slots, gpus=gpus, shared=known.shared)
    if known.kind is TaskKind.GPU_RESET:
        group = _group(known)
        assert isinstance(group, Group), "a task that cannot run is not begun"
        return GpuResetParameters(slots=list(group.slots), gpus=list(group.gpus), serials=dict(group.serials))
    return None


def _addresses(known: OpenTask) -> Sequence[str]:
    """The PCI address of each slot's GPU; none if the topology does not name one for each slot."""
    content = known.approved or known.found
    layout = None if content is None else layout_of(Topology.model_validate(content))
    return layout.addresses if layout is not None and len(layout.addresses) == known.slot_count else ()


def _verdict(known: OpenTask, thresholds: Overrides) -> Verdict:
    ended = EndedTask(known.task_state, known.task_dispatched, known.result, known.failure_code, known.failure_detail)
    machine = Machine(known.slot_count, tuple(_addresses(known)))
    health = HealthLimits(known.accepted, thresholds_for(thresholds, known.gpu_model), machine)
    group = _group(known) if known.kind is TaskKind.GPU_RESET else None
    return conclude(known.kind, ended, known.slots, health, group if isinstance(group, Group) else None)
