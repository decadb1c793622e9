"""Begins an attempt to clean up: of a releasing allocation, or of a failed one whose units are still occupied."""

from __future__ import annotations

from uuid import UUID

from orchestrator.domain.outcomes import Begun, Superseded
from orchestrator.domain.states import Actor, ActorKind, AllocationState
from orchestrator.domain.waits import Wait
from orchestrator.execution import Context, transact
from orchestrator.store.allocations import Subject, lock_allocation
from orchestrator.store.claims import draw_fence
from orchestrator.store.database import Transaction
from orchestrator.store.tasks import RELEASE_TYPES, issue_task, read_instructions, release_parameters
from orchestrator.store.timeline import note
from orchestrator.store.waiting import wait_for


async def begin_release(context: Context, allocation_id: UUID, notify: str) -> Begun | Superseded:
    """Issue the next attempt's task under a new fence, or say what an earlier call of the same workflow issued.

    Older live tasks become worthless. `Superseded` when there is nothing to clean up, or attempts are exhausted.
    """
    return await transact(context, lambda tx: _begin(context, tx, allocation_id, notify))


async def _begin(context: Context, tx: Transaction, allocation_id: UUID, notify: str) -> Begun | Superseded:
    subject = await lock_allocation(tx, allocation_id)
    if subject is None:
        return Superseded(None)
    if not _wants_cleanup(subject):
        return Superseded(subject.state)
    repeated = _already_begun(subject, notify)
    if repeated is not None:
        return repeated
    assert context.signer is not None, "only processes with a signing key begin tasks"
    attempt = subject.release_attempts + 1
    fence = await draw_fence(tx, subject.claim_id)
    told = await read_instructions(tx, subject.id)
    faults = told.faults_for(context.fault_labels_allowed)
    issued = await issue_task(
        tx,
        context.signer,
        subject,
        RELEASE_TYPES[subject.shape],
        release_parameters(told, faults, context.limits.release_graceful_seconds),
        node_epoch=told.node_epoch,
        fence=fence,
        attempt=attempt,
        notify=notify,
        valid_seconds=context.limits.release_seconds_max,
    )
    await note(tx, subject.id, Actor(ActorKind.WORKER, notify), "release_attempt", f"attempt {attempt}", fence)
    await wait_for(tx, subject, Wait.NODE, context.limits.release_seconds_max, release_attempts=attempt)
    return Begun(issued.id, subject.seconds_until(issued.expires_at))


def _wants_cleanup(subject: Subject) -> bool:
    if subject.state is AllocationState.RELEASING:
        return True
    failed_with_units = subject.state is AllocationState.FAILED and not subject.claim_closed
    return failed_with_units and subject.claim_waits_for is not Wait.OPERATOR


def _already_begun(subject: Subject, notify: str) -> Begun | None:
    """The attempt that waits for the node, live or ended but not yet concluded, if this workflow began it."""
    task = subject.task
    if task is None or subject.claim_waits_for is not Wait.NODE or task.notify != notify:
        return None
    return Begun(task.id, subject.seconds_until(task.expires_at) if task.live else 0.0, repeated=True)
