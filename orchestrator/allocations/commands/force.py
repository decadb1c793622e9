"""An admin's force-release and force-cleanup of an allocation, also of a stuck one; both are audited."""

from __future__ import annotations

from uuid import UUID

from orchestrator.allocations.states import FINAL_STATES, AllocationState
from orchestrator.allocations.store.advance import lock_allocation
from orchestrator.allocations.store.claims import end_right
from orchestrator.allocations.store.missing import missing_allocation
from orchestrator.allocations.store.releasing import ReleaseOrder, order_release
from orchestrator.allocations.store.rows import allocation_body, read_allocation
from orchestrator.allocations.store.stated_cleanup import Statement, clean_up, require_stuck
from orchestrator.allocations.store.timeline import note
from orchestrator.allocations.store.waits import wait_for
from orchestrator.allocations.subject import Subject
from orchestrator.allocations.waits import Wait
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import InvalidState
from orchestrator.tasks.store.tasks import supersede_live_tasks
from orchestrator.tenants.principals import Actor
from orchestrator.times import rfc3339

ACCEPTED = 202


async def force_release(
    context: Context, operation: Operation, actor: Actor, allocation_id: UUID, reason: str
) -> Answer:
    """Return 202 with the allocation, now releasing (a failed one stays failed), and begin its cleanup anew.

    A new fence and a new event start a new workflow with all attempts. Refusals: `NotFound`; `Archived`; `InvalidState` for
    a final allocation whose units are free.
    """

    async def effect(tx: Transaction) -> Done:
        subject = await lock_allocation(tx, allocation_id)
        if subject is None:
            raise await missing_allocation(tx, allocation_id, None, for_operator=True)
        if subject.state in FINAL_STATES and subject.claim_closed:
            raise InvalidState(
                f"the allocation is {subject.state} and its units are free; there is nothing to release",
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
    """Begin the cleanup again under a new fence, without a transition."""
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


async def force_cleanup(
    context: Context, operation: Operation, actor: Actor, allocation_id: UUID, reason: str
) -> Answer:
    """Return 200 with the allocation: its claim is closed and its units are free, by the admin's statement.

    The caller has checked the statement. A releasing or release_failed allocation becomes `released` through releasing, in
    this transaction; a failed one stays failed. A new fence supersedes live tasks; metered time does not change. Refusals:
    `NotFound`; `Archived`; `InvalidState` if a workload may rightly run, or the units are free already.
    """

    async def effect(tx: Transaction) -> Done:
        subject = await lock_allocation(tx, allocation_id)
        if subject is None:
            raise await missing_allocation(tx, allocation_id, None, for_operator=True)
        require_stuck(subject)
        wait_seconds = context.limits.requested_seconds_max
        await clean_up(tx, subject, actor, Statement(reason, wait_seconds, operation.key, operation.request_id))
        row = await read_allocation(tx, allocation_id, None)
        assert row is not None, "a locked allocation can be read"
        return Done(200, allocation_body(row), allocation_id)

    return await run_once(context, operation, effect, None)
