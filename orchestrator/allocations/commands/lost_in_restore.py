"""Releases allocations that a restored database has as active, although their guest ended in the lost interval."""

from __future__ import annotations

from uuid import UUID

from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store.absences import find_lost_in_restore
from orchestrator.allocations.store.advance import lock_allocation
from orchestrator.allocations.store.releasing import ReleaseOrder, order_release
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, transact
from orchestrator.tenants.principals import Actor, ActorKind

REASON = "lost_in_restore"
POLICY = Actor(ActorKind.ADMIN, "policy:lost_in_restore")


async def release_lost_in_restore(context: Context, allocation_id: UUID) -> bool:
    """Release it if the inventory that was awaited of its node does not name it, evaluated after its locks; return whether.

    Metered time ends, and its node proves the cleanup as for every release. The release is audited.
    """

    async def work(tx: Transaction) -> bool:
        subject = await lock_allocation(tx, allocation_id)
        if subject is None or subject.state is not AllocationState.ACTIVE:
            return False
        if not await find_lost_in_restore(tx, [subject.node_id], 1, allocation_id):
            return False
        await order_release(tx, subject, ReleaseOrder(REASON, context.limits.requested_seconds_max), POLICY)
        await audit.record(tx, POLICY, "allocation.release", subject.name, {"reason": REASON}, None)
        return True

    return await transact(context, work)
