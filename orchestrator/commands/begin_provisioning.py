"""requested -> provisioning: the node is told, by a signed task, to make the allocation usable."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.outcomes import Begun, Superseded
from orchestrator.domain.states import Actor, ActorKind, AllocationState
from orchestrator.domain.waits import Wait
from orchestrator.execution import Context, transact
from orchestrator.store.allocations import Change, Subject, advance_if, lock_allocation
from orchestrator.store.claims import draw_fence
from orchestrator.store.database import Transaction
from orchestrator.store.tasks import PROVISION_TYPES, issue_task, provision_parameters, read_instructions
from orchestrator.store.timeline import note
from orchestrator.store.waiting import wait_in_state


async def begin_provisioning(context: Context, allocation_id: UUID, notify: str) -> Begun | Superseded:
    """Begin, or say what an earlier call began; `notify` is the workflow to wake when the node is done.

    Also issues the task anew, under a new fence and within the first deadline, after a failure that may pass by itself.
    Answers `Superseded` when the allocation has gone elsewhere, does not exist, or waits for units that another one may
    still be on.
    """
    return await transact(context, lambda tx: _begin(context, tx, allocation_id, notify))


async def _begin(context: Context, tx: Transaction, allocation_id: UUID, notify: str) -> Begun | Superseded:
    subject = await lock_allocation(tx, allocation_id)
    if subject is None:
        return Superseded(None)
    worker = Actor(ActorKind.WORKER, notify)
    if subject.waits_for is Wait.UNITS:
        return Superseded(subject.state)
    if subject.state is AllocationState.REQUESTED:
        begun = await _issue(context, tx, subject, subject.fence, 1, notify, context.limits.provision_seconds_max)
        change = Change(
            AllocationState.PROVISIONING, subject.fence, waits_for=Wait.NODE, wait_seconds=begun.wait_seconds
        )
        await advance_if(tx, subject, change, worker)
        return begun
    if subject.state is not AllocationState.PROVISIONING:
        return Superseded(subject.state)
    task = subject.task
    assert task is not None, "provisioning began with a task"
    if subject.may_be_tried_again(context.limits.provision_retries):
        seconds_left = subject.seconds_until(subject.provision_until)
        fence = await draw_fence(tx, subject.claim_id)
        await note(tx, subject.id, worker, "provision_attempt", f"attempt {task.attempt + 1}", fence)
        begun = await _issue(context, tx, subject, fence, task.attempt + 1, notify, seconds_left)
        assert subject.provision_until is not None, "provisioning began with a deadline"
        await wait_in_state(tx, subject, Wait.NODE, subject.provision_until)
        return begun
    return Begun(task.id, subject.seconds_until(task.expires_at) if task.live else 0.0, repeated=True)


async def _issue(
    context: Context, tx: Transaction, subject: Subject, fence: int, attempt: int, notify: str, valid_seconds: float
) -> Begun:
    assert context.signer is not None, "only processes with a signing key begin tasks"
    told = await read_instructions(tx, subject.id)
    faults = told.faults_for(context.fault_labels_allowed)
    issued = await issue_task(
        tx,
        context.signer,
        subject,
        PROVISION_TYPES[subject.shape],
        provision_parameters(subject, told, faults),
        node_epoch=told.node_epoch,
        fence=fence,
        attempt=attempt,
        notify=notify,
        valid_seconds=valid_seconds,
    )
    return Begun(issued.id, subject.seconds_until(issued.expires_at))
