"""The tenant's (or billing's, or an admin's) release: from requested, provisioning, active or release_failed."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.errors import InvalidState, NotFound
from orchestrator.domain.states import Actor, AllocationState
from orchestrator.execution import Context, Done, run_once
from orchestrator.store.allocation_rows import allocation_body, read_allocation
from orchestrator.store.allocations import lock_allocation
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation
from orchestrator.store.releasing import ReleaseOrder, order_release

ACCEPTED = 202


async def release_allocation(
    context: Context,
    operation: Operation,
    actor: Actor,
    tenant_id: UUID | None,
    allocation_id: UUID,
    reason: str = "requested",
) -> Answer:
    """Answer 202 with the allocation, now releasing (released, if it still waited for its units). Releasing or released
    already: the same answer, nothing changes.

    Metered time ends here. A running task is worthless from now on. Refusals, remembered with the key: `NotFound` for
    an unknown allocation or another tenant's (no `tenant_id` means any), `InvalidState` for a failed one.
    """

    async def effect(tx: Transaction) -> Done:
        subject = await lock_allocation(tx, allocation_id, tenant_id)
        if subject is None:
            raise NotFound(f"there is no allocation {allocation_id}")
        if subject.state is AllocationState.FAILED:
            raise InvalidState("the allocation has failed; there is nothing to release", state=subject.state)
        if subject.state not in (AllocationState.RELEASING, AllocationState.RELEASED):
            wait_seconds = context.limits.requested_seconds_max
            order = ReleaseOrder(reason, wait_seconds, operation.key, operation.request_id)
            await order_release(tx, subject, order, actor)
        row = await read_allocation(tx, allocation_id, None)
        assert row is not None, "a locked allocation can be read"
        return Done(ACCEPTED, allocation_body(row), allocation_id)

    return await run_once(context, operation, effect, tenant_id)
