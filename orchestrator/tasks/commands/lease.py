"""Hand queued tasks to the nodes that wait for them (DESIGN §9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.calls import CallGroup
from orchestrator.operations.execution import Context
from orchestrator.tasks.store.dispatch import Dispatched, hand_out_again, lease_queued_tasks, nodes_with_queued_tasks

NODES_LOOKED_AT_MAX = 1_000


async def lease_tasks(context: Context, waiting: Mapping[UUID, str], *, batch_max: int) -> list[Dispatched]:
    """Flip queued tasks of these nodes, each with its certificate's serial, to dispatched and answer them, oldest first.

    Most of the time nothing is queued for most nodes, and naming hundreds of them in a statement costs milliseconds: a
    look comes first, and only those that something is queued for are named.
    """
    async with context.database.read_call(CallGroup.NODES) as call:
        queued = await nodes_with_queued_tasks(call, nodes_max=NODES_LOOKED_AT_MAX)
    if len(queued) < NODES_LOOKED_AT_MAX:
        waiting = {node: waiting[node] for node in queued if node in waiting}
    if not waiting:
        return []
    async with context.database.function_call(CallGroup.NODES) as call:
        reach(CrashPoint.LEASE_TASKS_BEFORE_COMMIT)
        dispatched = await lease_queued_tasks(call, waiting, batch_max=batch_max)
    reach(CrashPoint.LEASE_TASKS_AFTER_COMMIT)
    return dispatched


async def repeat_tasks(context: Context, node_id: UUID, epoch: int, known: Sequence[UUID]) -> list[Dispatched]:
    """The node's dispatched, unfinished tasks besides those it says it has journaled: the same envelopes."""
    async with context.database.autocommit() as tx:
        return await hand_out_again(tx, node_id, epoch, known)
