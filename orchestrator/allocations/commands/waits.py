"""Ends waits (P9): fails what was not started in time, starts what waited for units, takes over from lost workflows."""

from __future__ import annotations

from uuid import UUID

from orchestrator.allocations.failures import Code
from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store import claims
from orchestrator.allocations.store.advance import Change, advance_if, lock_allocation
from orchestrator.allocations.store.claims import close_claim, draw_fence, end_right, lock_node
from orchestrator.allocations.store.due import Waiter
from orchestrator.allocations.subject import Subject
from orchestrator.allocations.waits import Wait
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import EventType
from orchestrator.operations.execution import Context, transact
from orchestrator.tasks.store.tasks import hand_over
from orchestrator.tenants.principals import Actor, ActorKind


async def fail_unstarted(context: Context, allocation_id: UUID) -> Code | None:
    """Fail an allocation that is still requested past its deadline, evaluated after its locks; return the code if it failed.

    Its units stay occupied until a cleanup is proven, although nothing was started (P6). Units that it still waited for
    were never occupied by it, and its claim closes.
    """
    return await transact(context, lambda tx: _fail(context, tx, allocation_id))


async def _fail(context: Context, tx: Transaction, allocation_id: UUID) -> Code | None:
    subject = await lock_allocation(tx, allocation_id)
    if subject is None or subject.state is not AllocationState.REQUESTED:
        return None
    if subject.seconds_until(subject.waits_until) > 0:
        return None
    wait_seconds = context.limits.requested_seconds_max
    if subject.waits_for is Wait.UNITS:
        code, detail = (
            Code.UNITS_NOT_FREE,
            "cleanup of the previous allocation on its units was not proven before the deadline",
        )
        fence = await draw_fence(tx, subject.claim_id)
        await close_claim(tx, subject)
    else:
        code, detail = Code.NOT_STARTED, "no worker started it before its deadline"
        fence = await end_right(tx, subject.claim_id, Wait.CLEANUP, wait_seconds)
    await advance_if(tx, subject, _change(subject, code, detail, fence), Actor(ActorKind.WORKER, "sweeper"))
    return code


def _change(subject: Subject, code: Code, detail: str, fence: int) -> Change:
    return Change(
        AllocationState.FAILED,
        fence,
        EventType.PROVISIONING_FAILED,
        {"node_id": subject.node_id},
        code=code,
        detail=detail,
    )


async def start_waiting(context: Context, node_id: UUID) -> int:
    """Start the allocations that wait for free units of the node; return how many. Raises `NotFound` for an unknown node."""

    async def work(tx: Transaction) -> int:
        await lock_node(tx, node_id)
        return await claims.start_waiting(tx, node_id, context.limits.requested_seconds_max)

    return await transact(context, work)


async def take_over_wait(context: Context, seen: Waiter, workflow_id: str) -> bool:
    """Take over the wait of a lost workflow if nothing has changed since it was `seen`, evaluated after the locks.

    Equal state, row version, fence and task mean that no other transaction acted. Return whether the caller may start its
    workflow.
    """

    async def work(tx: Transaction) -> bool:
        subject = await lock_allocation(tx, seen.allocation_id)
        if subject is None:
            return False
        task_id: UUID | None = None if subject.task is None else subject.task.id
        found = (subject.state, subject.row_version, subject.fence, task_id, subject.claim_closed)
        if found != (seen.state, seen.row_version, seen.fence, seen.task_id, False):
            return False
        if subject.task is not None:
            if subject.task.notify != seen.notify:
                return False
            await hand_over(tx, subject.task.id, workflow_id)
        return True

    return await transact(context, work)
