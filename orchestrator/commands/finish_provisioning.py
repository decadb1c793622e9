"""provisioning -> active or failed, by what the task's row says: the row is the fact, signals are hints."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from orchestrator.domain.events import EventType
from orchestrator.domain.failures import silence
from orchestrator.domain.outcomes import Concluded, Retry, Superseded, Waiting
from orchestrator.domain.states import Actor, ActorKind, AllocationState, TaskState
from orchestrator.domain.waits import Wait
from orchestrator.execution import Context, transact
from orchestrator.store.allocations import Change, Subject, advance_if, lock_allocation
from orchestrator.store.claims import end_right
from orchestrator.store.database import Transaction
from orchestrator.store.tasks import expire_task
from orchestrator.store.waiting import wait_in_state

Outcome = Concluded | Waiting | Retry | Superseded


async def finish_provisioning(context: Context, allocation_id: UUID) -> Outcome:
    """Conclude if the task has ended or its time is up, else say how long there is to wait. Repeating it is harmless.

    A failed allocation keeps its units occupied until cleanup is proven; its claim says that it waits for that.
    """
    return await transact(context, lambda tx: _finish(context, tx, allocation_id))


async def _finish(context: Context, tx: Transaction, allocation_id: UUID) -> Outcome:
    subject = await lock_allocation(tx, allocation_id)
    if subject is None:
        return Superseded(None)
    if subject.state is AllocationState.ACTIVE:
        return Concluded(AllocationState.ACTIVE)
    if subject.state is AllocationState.FAILED:
        return Concluded(AllocationState.FAILED, cleanup=not subject.claim_closed)
    if subject.state is not AllocationState.PROVISIONING:
        return Superseded(subject.state)
    task = subject.task
    assert task is not None, "provisioning began with a task"
    if task.state is TaskState.COMPLETED:
        return await _activate(tx, subject)
    if task.live:
        seconds_left = subject.seconds_until(task.expires_at)
        if seconds_left > 0:
            return Waiting(seconds_left)
        await expire_task(tx, task.id)
        return await _fail(context, tx, subject, *silence(subject.node_online))
    if task.failure_code is None:
        return await _fail(context, tx, subject, *silence(subject.node_online))
    retries = context.limits.provision_retries
    if not subject.may_be_tried_again(retries):
        return await _fail(context, tx, subject, task.failure_code, task.failure_detail or task.failure_code)
    if subject.waits_for is Wait.RETRY:
        return Retry(subject.seconds_until(subject.waits_until))
    # Never past the deadline of the whole: then the next look fails it.
    assert subject.provision_until is not None, "provisioning began with a deadline"
    until = min(subject.clock + timedelta(seconds=retries.pause_seconds(task.attempt)), subject.provision_until)
    await wait_in_state(tx, subject, Wait.RETRY, until)
    return Retry(subject.seconds_until(until))


async def _activate(tx: Transaction, subject: Subject) -> Concluded:
    assert subject.task is not None, "the caller saw a completed task"
    assert subject.task.result is not None, "a completed task has a result"
    assert subject.task.fence == subject.fence, "only the newest fence's task can complete"
    change = Change(
        AllocationState.ACTIVE,
        subject.fence,
        EventType.PROVISIONING_ACTIVE,
        {
            "sku": subject.sku,
            "shape": subject.shape,
            "gpus": subject.gpus,
            "region": subject.region,
            "node_id": subject.node_id,
            "price_version": subject.price_version,
        },
        waits_for=Wait.TENANT,
        connection=subject.task.result["connection"],
    )
    await advance_if(tx, subject, change, _worker(subject))
    return Concluded(AllocationState.ACTIVE, took_seconds=subject.seconds_since(subject.requested_at))


async def _fail(context: Context, tx: Transaction, subject: Subject, code: str, detail: str) -> Concluded:
    fence = await end_right(tx, subject.claim_id, Wait.CLEANUP, context.limits.requested_seconds_max)
    change = Change(
        AllocationState.FAILED,
        fence,
        EventType.PROVISIONING_FAILED,
        {"node_id": subject.node_id},
        code=code,
        detail=detail,
    )
    await advance_if(tx, subject, change, _worker(subject))
    return Concluded(AllocationState.FAILED, code=code, cleanup=True)


def _worker(subject: Subject) -> Actor:
    notify = subject.task.notify if subject.task else None
    return Actor(ActorKind.WORKER, notify or "worker")
