"""Ends the waits of unhealthy allocations: degraded ones become lost, lost ones are released by the operator's policy (P9)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.allocations.health import Health
from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store import health as store
from orchestrator.allocations.store.advance import lock_allocation
from orchestrator.allocations.store.releasing import ReleaseOrder, order_release
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, transact
from orchestrator.tenants.principals import Actor, ActorKind

REASON = "lost"
POLICY = Actor(ActorKind.ADMIN, "policy:lost")


async def pass_health_deadline(context: Context, allocation_id: UUID) -> str | None:
    """Make a degraded allocation `lost`, or release a lost one, if its deadline has passed, evaluated after its locks.

    Return `lost` or `released`; None if it has recovered, is being released, or has time left. The release is audited.
    """

    async def work(tx: Transaction) -> str | None:
        subject = await lock_allocation(tx, allocation_id)
        if subject is None or subject.state is not AllocationState.ACTIVE:
            return None
        before = await store.pass_deadline(tx, allocation_id, store.deadlines_of(context))
        if before is None or before is Health.DEGRADED:
            return None if before is None else "lost"
        await order_release(tx, subject, ReleaseOrder(REASON, context.limits.requested_seconds_max), POLICY)
        await audit.record(tx, POLICY, "allocation.release", subject.name, {"reason": REASON}, None)
        return "released"

    return await transact(context, work)


async def degrade_unnoticed(context: Context, node_id: UUID) -> int:
    """Degrade the healthy allocations of a node that is offline, evaluated after its lock; return how many."""

    async def work(tx: Transaction) -> int:
        if not await store.lock_offline_node(tx, node_id):
            return 0
        return len(await store.note_silence(tx, node_id, store.deadlines_of(context)))

    return await transact(context, work)
