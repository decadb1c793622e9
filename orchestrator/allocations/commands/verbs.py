"""Verbs of an active allocation: ordered by the tenant or an operator, begun and finished by a worker (DESIGN §4).

The allocation stays `active` and keeps claim, quota and metering. A verb is one signed task under a new fence and is tried
once. A release supersedes it.
"""

from __future__ import annotations

from uuid import UUID

from berth.process.json_objects import JsonObject
from node_agent.protocol import TaskType
from node_agent.wire.networks import NetworkOrder
from orchestrator.allocations.failures import Code, next_step_of, silence
from orchestrator.allocations.outcomes import Begun, Concluded, Superseded, Waiting
from orchestrator.allocations.rules import is_ordered, state_after_failure
from orchestrator.allocations.states import VERB_RESULTS, AllocationState, GuestState, Verb
from orchestrator.allocations.store import verbs as store
from orchestrator.allocations.store.advance import lock_allocation
from orchestrator.allocations.store.claims import draw_fence
from orchestrator.allocations.store.missing import missing_allocation
from orchestrator.allocations.store.rows import allocation_body, read_allocation
from orchestrator.allocations.store.timeline import note
from orchestrator.allocations.store.verbs import Ended
from orchestrator.allocations.store.waits import wait_in_state
from orchestrator.allocations.subject import Subject
from orchestrator.allocations.waits import Wait
from orchestrator.audit import store as audit
from orchestrator.catalogue.shapes import Shape
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.networks.store.leases import find_network
from orchestrator.operations.execution import Context, Done, run_once, transact
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import InvalidState
from orchestrator.tasks.states import TaskState
from orchestrator.tasks.store.site_tasks import is_deployed_by_site, verb_seconds_max
from orchestrator.tasks.store.tasks import (
    Instructions,
    SizeUnsupported,
    issue_task,
    mark_task_expired,
    read_instructions,
    verb_parameters,
)
from orchestrator.tenants.principals import Actor, ActorKind

ACCEPTED = 202


async def order_verb(
    context: Context, operation: Operation, actor: Actor, tenant_id: UUID | None, allocation_id: UUID, verb: Verb
) -> Answer:
    """Return 202 with the allocation; its guest is about to change.

    The same verb in progress, `stop` of a stopped guest, `start` of a running healthy guest and `rescue` of a machine that runs
    its rescue system change nothing. Refusals, stored with the key: `NotFound` for an unknown allocation or another tenant's
    (`tenant_id` None means any tenant), `Archived`, `InvalidState` for one that is not active or past its end, or a `rescue` of
    one that no site has deployed, `VerbInProgress` during another verb.
    """

    async def effect(tx: Transaction) -> Done:
        subject = await lock_allocation(tx, allocation_id, tenant_id)
        if subject is None:
            raise await missing_allocation(tx, allocation_id, tenant_id)
        ordered = is_ordered(subject, verb)
        if ordered and verb is Verb.RESCUE and not context.limits.rescues_allowed:
            raise InvalidState(
                "this deployment has no rescue systems yet; rebuild or release it", state="no_rescue_system"
            )
        if ordered and verb is Verb.RESCUE and not await _is_by_site(tx, subject):
            raise InvalidState(
                "only a bare-metal machine that its site deployed through a BMC has a rescue system; rebuild or release it",
                state="no_rescue_system",
            )
        if ordered:
            await _order(context, tx, operation, actor, subject, verb)
        row = await read_allocation(tx, allocation_id, None)
        assert row is not None, "a locked allocation can be read"
        return Done(ACCEPTED, allocation_body(row), allocation_id, "ok" if ordered else "noop")

    return await run_once(context, operation, effect, tenant_id)


async def _is_by_site(tx: Transaction, subject: Subject) -> bool:
    return subject.shape is Shape.BAREMETAL and await is_deployed_by_site(tx, subject.id)


async def _network(tx: Transaction, subject: Subject, instructions: Instructions) -> NetworkOrder | None:
    """What is leased to the allocation, as its node's agent reads it."""
    found = await find_network(tx, subject.id) if instructions.networked else None
    return None if found is None else instructions.understood(found)


async def _order(
    context: Context, tx: Transaction, operation: Operation, actor: Actor, subject: Subject, verb: Verb
) -> None:
    fence = await draw_fence(tx, subject.claim_id)
    await store.order_verb(tx, subject, verb, context.limits.requested_seconds_max)
    await note(tx, subject.id, actor, "verb_requested", verb, fence)
    payload = {"allocation_id": str(subject.id), "verb": verb.value, "actor_kind": actor.kind.value, "fence": fence}
    event = Event(
        EventType.ALLOCATION_VERB_REQUESTED, subject.name, subject.correlation_id, subject.tenant_id, payload,
        operation.key, operation.request_id,
    )  # fmt: skip
    await append_event(tx, event)
    if actor.kind is ActorKind.ADMIN:
        await audit.record(tx, actor, f"allocation.{verb}", subject.name, {"verb": verb.value}, operation.request_id)


async def begin_verb(context: Context, allocation_id: UUID, notify: str) -> Begun | Superseded:
    """Issue the task of the ordered verb, or return what an earlier call issued; `notify` is the workflow to wake at its end.

    `Superseded`: the allocation is not active, no verb is ordered, or it failed, since the node's agent makes no guests of the
    size that the SKU states.
    """
    return await transact(context, lambda tx: _begin(context, tx, allocation_id, notify))


async def _begin(context: Context, tx: Transaction, allocation_id: UUID, notify: str) -> Begun | Superseded:
    subject = await lock_allocation(tx, allocation_id)
    if subject is None or subject.state is not AllocationState.ACTIVE or subject.guest_verb is None:
        return Superseded(None if subject is None else subject.state)
    task = subject.task
    if task is not None and task.fence == subject.fence:
        return Begun(task.id, subject.seconds_until(task.expires_at) if task.live else 0.0, repeated=True)
    assert context.signer is not None, "only processes with a signing key begin tasks"
    by_site = await _is_by_site(tx, subject)
    instructions = await read_instructions(tx, subject.id)
    instructions = instructions.for_site() if by_site else instructions
    verb = Verb(subject.guest_verb)
    if verb is Verb.REBUILD:
        try:
            instructions.require_size_supported()
        except SizeUnsupported as why:
            code, before = Code.GUEST_SIZE_UNSUPPORTED, subject.guest_state or GuestState.RUNNING
            await _end(tx, subject, notify, verb, Ended(state_after_failure(before, code), code, str(why)))
            return Superseded(subject.state)
    task_type = TaskType(f"allocation.{verb}")
    issued = await issue_task(
        tx,
        context.signer,
        subject,
        task_type,
        verb_parameters(
            subject, verb, instructions, instructions.faults_for(context.fault_labels_allowed),
            context.limits.release_graceful_seconds,
            await _network(tx, subject, instructions) if verb is Verb.REBUILD else None,
        ),
        node_epoch=instructions.node_epoch,
        fence=subject.fence,
        attempt=1,
        notify=notify,
        valid_seconds=verb_seconds_max(task_type) if by_site else context.limits.provision_seconds_max,
        by_site=by_site,
    )  # fmt: skip
    await wait_in_state(tx, subject, Wait.NODE, issued.expires_at)
    return Begun(issued.id, subject.seconds_until(issued.expires_at))


Outcome = Concluded | Waiting | Superseded


async def finish_verb(context: Context, allocation_id: UUID) -> Outcome:
    """Conclude if the task has ended or passed its deadline, else return how long to wait. Safe to repeat.

    A failed verb leaves the allocation active: its tenant orders another verb, or releases it.
    """
    return await transact(context, lambda tx: _finish(tx, allocation_id))


async def _finish(tx: Transaction, allocation_id: UUID) -> Outcome:
    subject = await lock_allocation(tx, allocation_id)
    if subject is None or subject.state is not AllocationState.ACTIVE:
        return Superseded(None if subject is None else subject.state)
    task = subject.task
    if subject.guest_verb is None or task is None or task.fence != subject.fence:
        return Superseded(subject.state)
    verb = Verb(subject.guest_verb)
    if task.live:
        seconds_left = subject.seconds_until(task.expires_at)
        if seconds_left > 0:
            return Waiting(seconds_left)
        await mark_task_expired(tx, task.id)
    if task.state is TaskState.COMPLETED:
        assert task.result is not None, "a completed task has a result"
        await _end(tx, subject, task.notify, verb, _done(verb, task.result))
        return Concluded(subject.state)
    code, detail = task.failure_code, task.failure_detail
    if code is None:
        code, detail = silence(subject.node_online)
    before = subject.guest_state or GuestState.RUNNING
    await _end(tx, subject, task.notify, verb, Ended(state_after_failure(before, code), code, detail))
    return Concluded(subject.state, code=code)


def _done(verb: Verb, result: JsonObject) -> Ended:
    return Ended(VERB_RESULTS[verb], connection=result["connection"], rescue=result.get("rescue"))


async def _end(tx: Transaction, subject: Subject, notify: str | None, verb: Verb, ended: Ended) -> None:
    """Record the end of the verb, its note and its event."""
    await store.end_verb(tx, subject, ended)
    worker = Actor(ActorKind.WORKER, notify or "worker")
    kind, payload = EventType.ALLOCATION_VERB_COMPLETED, _payload(subject, verb, ended)
    if ended.code is not None:
        kind = EventType.ALLOCATION_VERB_FAILED
        payload |= {"code": ended.code, "detail": ended.detail, "next_step": next_step_of(ended.code)}
    await note(tx, subject.id, worker, ended.code or "verb_completed", ended.detail or verb, subject.fence)
    await append_event(tx, Event(kind, subject.name, subject.correlation_id, subject.tenant_id, payload))


def _payload(subject: Subject, verb: Verb, ended: Ended) -> JsonObject:
    return {
        "allocation_id": str(subject.id),
        "verb": verb.value,
        "guest_state": ended.guest_state.value,
        "fence": subject.fence,
    }
