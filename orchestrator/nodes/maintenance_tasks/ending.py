"""The end of the task of a maintenance window on a node, within the transaction of the worker's command."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from orchestrator.database.transactions import Transaction
from orchestrator.maintenance.changes import note_task_end, task_payload
from orchestrator.maintenance.states import WindowTaskState
from orchestrator.nodes.maintenance_tasks.rules import NOT_PROVEN, Verdict
from orchestrator.nodes.states import NodeState
from orchestrator.nodes.store import gpu_resets, quarantines
from orchestrator.nodes.store import maintenance_tasks as store
from orchestrator.nodes.store.maintenance_tasks import OpenTask
from orchestrator.nodes.store.out_of_service import take_out_of_service
from orchestrator.nodes.store.quarantines import NewQuarantine
from orchestrator.tenants.principals import Actor, ActorKind

MAINTENANCE: Final = Actor(ActorKind.WORKER, "maintenance")


def why_late(known: OpenTask) -> str:
    """Why less time is left of the window than the task may take: a code, and what was found."""
    left = f"until the window had less than the {known.seconds_max} s left that the task may take"
    if known.obstacle == "offline":
        return f"node_offline: the node was offline {left}"
    if known.obstacle == "units":
        return f"units_not_held: an allocation or an orphan kept units of the window {left}"
    if known.obstacle == "busy":
        return f"node_busy: a burn-in, a reset of GPUs or the task of another window ran on the node {left}"
    return f"window_too_short: the task was not begun {left}"


async def end_task(
    tx: Transaction, window_id: UUID, node_id: UUID, known: OpenTask, verdict: Verdict
) -> WindowTaskState:
    """End the locked task as judged, with event and audit row; slots of one that is not proven are in quarantine."""
    verdict = verdict.bounded()
    if verdict.state in NOT_PROVEN and known.node_state is not NodeState.RETIRED:
        await _keep_out(tx, node_id, known, verdict)
    await store.end(tx, window_id, node_id, verdict.state, verdict.failure, verdict.evidence)
    payload = task_payload(window_id, node_id, known.kind, known.plugin, verdict.state, verdict.failure)
    await note_task_end(tx, payload, MAINTENANCE)
    return verdict.state


async def _keep_out(tx: Transaction, node_id: UUID, known: OpenTask, verdict: Verdict) -> None:
    """What the task did to the node is not known to be whole: its slots do not return with the window."""
    what = known.kind.value if known.plugin is None else f"plugin {known.plugin}"
    became = "was interrupted" if verdict.state is WindowTaskState.INTERRUPTED else "failed"
    reason = f"the task of its maintenance window ({what}) {became}"
    evidence = "\n".join(part for part in (verdict.failure, verdict.evidence) if part)
    begun = [
        NewQuarantine(slot.slot_index, slot.unit, reason, evidence)
        for slot in await gpu_resets.read_slots(tx, node_id)
        if slot.slot_index in known.slots and not slot.quarantined
    ]
    await take_out_of_service(tx, node_id, begun, MAINTENANCE, "operator")
    await quarantines.note_faults(tx, node_id, known.slots)
