"""Billing's release: what a tenant runs whose prepaid balance is used up (docs/billing.md)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.states import Actor, ActorKind, AllocationState
from orchestrator.execution import Context, transact
from orchestrator.store import audit
from orchestrator.store.allocations import lock_allocation
from orchestrator.store.balances import is_depleted
from orchestrator.store.database import Transaction
from orchestrator.store.releasing import ReleaseOrder, order_release

REASON = "balance_depleted"
_ACTOR = Actor(ActorKind.BILLING, REASON)


async def release_for_billing(context: Context, allocation_id: UUID) -> bool:
    """Release it if it is active and its tenant's balance is still used up, judged under both locks; whether it did.

    It is on the record. A top-up that was committed before keeps it. What is not active yet is released when it has become so.
    """

    async def work(tx: Transaction) -> bool:
        subject = await lock_allocation(tx, allocation_id)
        if subject is None or subject.state is not AllocationState.ACTIVE:
            return False
        if not await is_depleted(tx, subject.tenant_id):
            return False
        order = ReleaseOrder(REASON, context.limits.requested_seconds_max)
        await order_release(tx, subject, order, _ACTOR)
        await audit.record(tx, _ACTOR, "allocation.release", subject.name, {"tenant_id": subject.tenant_id}, None)
        return True

    return await transact(context, work)
