"""Release by the tenant or an admin, and at `ends_at`: from requested, provisioning, active or release_failed."""

from __future__ import annotations

from uuid import UUID

from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store.advance import lock_allocation
from orchestrator.allocations.store.missing import missing_allocation
from orchestrator.allocations.store.releasing import ReleaseOrder, order_release
from orchestrator.allocations.store.rows import allocation_body, read_allocation
from orchestrator.allocations.waits import Wait
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, Done, run_once, transact
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import InvalidState
from orchestrator.tenants.principals import Actor, ActorKind

ACCEPTED = 202


async def release_allocation(
    context: Context,
    operation: Operation,
    actor: Actor,
    tenant_id: UUID | None,
    allocation_id: UUID,
    reason: str = "requested",
) -> Answer:
    """Return 202 with the allocation, now releasing (released, if it still waited for its units). A repetition changes nothing.

    Metered time ends here, and a running task is superseded. Refusals, stored with the key: `NotFound` for an unknown
    allocation or another tenant's (`tenant_id` None means any tenant), `Archived`, `InvalidState` for a failed one.
    """

    async def effect(tx: Transaction) -> Done:
        subject = await lock_allocation(tx, allocation_id, tenant_id)
        if subject is None:
            raise await missing_allocation(tx, allocation_id, tenant_id)
        if subject.state is AllocationState.FAILED:
            raise InvalidState("the allocation has failed; it cannot be released", state=subject.state)
        if subject.state not in (AllocationState.RELEASING, AllocationState.RELEASED):
            wait_seconds = context.limits.requested_seconds_max
            order = ReleaseOrder(reason, wait_seconds, operation.key, operation.request_id)
            await order_release(tx, subject, order, actor)
        row = await read_allocation(tx, allocation_id, None)
        assert row is not None, "a locked allocation can be read"
        return Done(ACCEPTED, allocation_body(row), allocation_id)

    return await run_once(context, operation, effect, tenant_id)


REASON = "ends_at"
_RUNNING = frozenset({AllocationState.REQUESTED, AllocationState.PROVISIONING, AllocationState.ACTIVE})


async def release_at_end(context: Context, allocation_id: UUID) -> bool:
    """Release an allocation at or past its `ends_at`, evaluated after its locks; return whether it was released.

    An allocation that still waits for its units is left out: the deadline of that wait fails it.
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
