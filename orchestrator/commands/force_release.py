"""An admin's release from any state that is not over, also of one that is stuck. Written to the audit."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.errors import InvalidState, NotFound
from orchestrator.domain.events import Event, EventType
from orchestrator.domain.states import FINAL_STATES, Actor, AllocationState
from orchestrator.domain.times import rfc3339
from orchestrator.domain.waits import Wait
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit
from orchestrator.store.allocation_rows import allocation_body, read_allocation
from orchestrator.store.allocations import Subject, lock_allocation
from orchestrator.store.claims import end_right
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation
from orchestrator.store.outbox import append_event
from orchestrator.store.releasing import ReleaseOrder, order_release
from orchestrator.store.tasks import supersede_live_tasks
from orchestrator.store.timeline import note
from orchestrator.store.waiting import wait_for

ACCEPTED = 202


async def force_release(
    context: Context, operation: Operation, actor: Actor, allocation_id: UUID, reason: str
) -> Answer:
    """Answer 202 with the allocation, now releasing (a failed one stays failed) and its cleanup begun anew.

    Under a new fence, with a new event, so that a new workflow starts with all its attempts. Refusals: `NotFound`;
    `InvalidState` for an allocation that is over and whose units are free.
    """

    async def effect(tx: Transaction) -> Done:
        subject = await lock_allocation(tx, allocation_id)
        if subject is None:
            raise NotFound(f"there is no allocation {allocation_id}")
        if subject.state in FINAL_STATES and subject.claim_closed:
            raise InvalidState(
                f"the allocation is {subject.state} and its units are free; nothing is left to release",
                state=subject.state,
            )
        if subject.state in FINAL_STATES or subject.state is AllocationState.RELEASING:
            await _begin_anew(context, tx, subject, operation, actor, reason)
        else:
            wait_seconds = context.limits.requested_seconds_max
            order = ReleaseOrder(reason, wait_seconds, operation.key, operation.request_id)
            await order_release(tx, subject, order, actor)
        detail = {"reason": reason, "from_state": subject.state}
        await audit.record(tx, actor, "allocation.force_release", subject.name, detail, operation.request_id)
        row = await read_allocation(tx, allocation_id, None)
        assert row is not None, "a locked allocation can be read"
        return Done(ACCEPTED, allocation_body(row), allocation_id)

    return await run_once(context, operation, effect, None)


async def _begin_anew(
    context: Context, tx: Transaction, subject: Subject, operation: Operation, actor: Actor, reason: str
) -> None:
    """No transition: cleanup starts over, under a new fence."""
    await supersede_live_tasks(tx, subject.id)
    wait_seconds = context.limits.requested_seconds_max
    waits_for = Wait.WORKER if subject.state is AllocationState.RELEASING else Wait.CLEANUP
    fence = await end_right(tx, subject.claim_id, waits_for, wait_seconds)
    await wait_for(tx, subject, waits_for, wait_seconds, release_attempts=0)
    await note(tx, subject.id, actor, "force_release", reason, fence)
    event = Event(
        EventType.RELEASING_REQUESTED,
        subject=subject.name,
        correlation_id=subject.correlation_id,
        tenant_id=subject.tenant_id,
        payload={
            "allocation_id": str(subject.id),
            "reason": reason,
            "actor_kind": actor.kind.value,
            "fence": fence,
            "releasing_at": rfc3339(subject.releasing_at),
        },
        operation_key=operation.key,
        request_id=operation.request_id,
    )
    await append_event(tx, event)
