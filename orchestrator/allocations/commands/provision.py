"""Provisioning: a signed task makes the allocation usable on its node (requested -> provisioning -> active or failed)."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from orchestrator.allocations.failures import Code, silence
from orchestrator.allocations.outcomes import Begun, Concluded, Retry, Superseded, Waiting
from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store.advance import Change, advance_if, lock_allocation
from orchestrator.allocations.store.claims import draw_fence, end_right
from orchestrator.allocations.store.timeline import note
from orchestrator.allocations.store.waits import wait_in_state
from orchestrator.allocations.subject import Subject
from orchestrator.allocations.waits import Wait
from orchestrator.catalogue.shapes import Shape
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import EventType
from orchestrator.networks.rules import NetworkFull
from orchestrator.networks.store.leases import lease_network
from orchestrator.operations.execution import Context, transact
from orchestrator.tasks.states import TaskState
from orchestrator.tasks.store.site_tasks import PROVISION_SECONDS_MAX, is_of_site
from orchestrator.tasks.store.tasks import (
    PROVISION_TYPES,
    EndedBeforeRestore,
    SizeUnsupported,
    issue_task,
    mark_task_expired,
    provision_parameters,
    read_instructions,
)
from orchestrator.tenants.principals import Actor, ActorKind


async def begin_provisioning(context: Context, allocation_id: UUID, notify: str) -> Begun | Concluded | Superseded:
    """Issue the task, or return what an earlier call issued; `notify` is the workflow to wake at its end.

    After a transient failure the task is issued again, under a new fence and within the first deadline. `Superseded`: the
    allocation does not exist, changed state, waits for units that another allocation may still occupy, or was released in the
    lost interval of a restore. `Concluded`: it failed, since nothing is left to lease for its tenant's network, or the agent of
    its node makes no guests of the size that the SKU states.
    """
    return await transact(context, lambda tx: _begin(context, tx, allocation_id, notify))


async def _begin(context: Context, tx: Transaction, allocation_id: UUID, notify: str) -> Begun | Concluded | Superseded:
    subject = await lock_allocation(tx, allocation_id)
    if subject is None:
        return Superseded(None)
    worker = Actor(ActorKind.WORKER, notify)
    if subject.waits_for is Wait.UNITS:
        return Superseded(subject.state)
    if subject.state is AllocationState.REQUESTED:
        try:
            begun = await _issue(context, tx, subject, subject.fence, 1, notify, context.limits.provision_seconds_max)
        except NetworkFull as full:
            return await _fail(context, tx, subject, Code.NETWORK_FULL, str(full))
        except SizeUnsupported as why:
            return await _fail(context, tx, subject, Code.GUEST_SIZE_UNSUPPORTED, str(why))
        except EndedBeforeRestore:
            return Superseded(subject.state)
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
        try:
            begun = await _issue(context, tx, subject, fence, task.attempt + 1, notify, seconds_left)
        except NetworkFull as full:
            return await _fail(context, tx, subject, Code.NETWORK_FULL, str(full))
        except SizeUnsupported as why:
            return await _fail(context, tx, subject, Code.GUEST_SIZE_UNSUPPORTED, str(why))
        except EndedBeforeRestore:
            return Superseded(subject.state)
        assert subject.provision_until is not None, "provisioning began with a deadline"
        await wait_in_state(tx, subject, Wait.NODE, subject.provision_until)
        return begun
    return Begun(task.id, subject.seconds_until(task.expires_at) if task.live else 0.0, repeated=True)


async def _issue(
    context: Context, tx: Transaction, subject: Subject, fence: int, attempt: int, notify: str, valid_seconds: float
) -> Begun:
    assert context.signer is not None, "only processes with a signing key begin tasks"
    instructions = await read_instructions(tx, subject.id)
    instructions.require_not_ended()
    by_site = subject.shape is Shape.BAREMETAL and await is_of_site(tx, subject.id, subject.node_id)
    if by_site:
        instructions = instructions.for_site()
        valid_seconds = PROVISION_SECONDS_MAX if attempt == 1 else valid_seconds
    instructions.require_size_supported()
    faults = instructions.faults_for(context.fault_labels_allowed)
    network = None
    if instructions.networked:
        # An agent that names no guest would never have the name answered, and no other guest could lease it.
        name = instructions.name if instructions.names_guests else None
        leased = await lease_network(tx, subject, context.limits.networks, name, by_vlan=instructions.by_vlan)
        network = instructions.understood(leased)
    issued = await issue_task(
        tx,
        context.signer,
        subject,
        PROVISION_TYPES[subject.shape],
        provision_parameters(subject, instructions, faults, network),
        node_epoch=instructions.node_epoch,
        fence=fence,
        attempt=attempt,
        notify=notify,
        valid_seconds=valid_seconds,
        by_site=by_site,
    )
    return Begun(issued.id, subject.seconds_until(issued.expires_at))


Outcome = Concluded | Waiting | Retry | Superseded


async def finish_provisioning(context: Context, allocation_id: UUID) -> Outcome:
    """Conclude if the task has ended or passed its deadline, else return how long to wait. Safe to repeat.

    The units of a failed allocation stay occupied until cleanup is proven; its claim stores that wait.
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
        await mark_task_expired(tx, task.id)
        return await _fail(context, tx, subject, *silence(subject.node_online))
    if task.failure_code is None:
        return await _fail(context, tx, subject, *silence(subject.node_online))
    retries = context.limits.provision_retries
    if not subject.may_be_tried_again(retries):
        return await _fail(context, tx, subject, task.failure_code, task.failure_detail or task.failure_code)
    if subject.waits_for is Wait.RETRY:
        return Retry(subject.seconds_until(subject.waits_until))
    # Never past the deadline of all attempts; the next call then fails the allocation.
    assert subject.provision_until is not None, "provisioning began with a deadline"
    until = min(subject.clock + timedelta(seconds=retries.pause_seconds(task.attempt)), subject.provision_until)
    await wait_in_state(tx, subject, Wait.RETRY, until)
    return Retry(subject.seconds_until(until))


async def _activate(tx: Transaction, subject: Subject) -> Concluded:
    assert subject.task is not None, "the caller checked that the task completed"
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
