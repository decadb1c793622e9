"""An allocation's time is over: it is released, as its tenant ordered when it was asked for (docs/lifecycle.md)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.states import Actor, ActorKind, AllocationState
from orchestrator.domain.waits import Wait
from orchestrator.execution import Context, transact
from orchestrator.store.allocations import lock_allocation
from orchestrator.store.database import Transaction
from orchestrator.store.releasing import ReleaseOrder, order_release

REASON = "ends_at"
_RUNNING = frozenset({AllocationState.REQUESTED, AllocationState.PROVISIONING, AllocationState.ACTIVE})


async def release_at_end(context: Context, allocation_id: UUID) -> bool:
    """Release it if its `ends_at` has come, judged after its locks, however long ago; answers whether it did.

    One that still waits for its units is left to its deadline, which fails it.
    """

    async def work(tx: Transaction) -> bool:
        subject = await lock_allocation(tx, allocation_id)
        if subject is None or subject.state not in _RUNNING or subject.waits_for is Wait.UNITS:
            return False
        if subject.ends_at is None or subject.seconds_until(subject.ends_at) > 0:
            return False
        order = ReleaseOrder(REASON, context.limits.requested_seconds_max)
        await order_release(tx, subject, order, Actor(ActorKind.TENANT, REASON))
        return True

    return await transact(context, work)
