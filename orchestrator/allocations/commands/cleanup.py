"""Cleanup attempts of a releasing allocation, or of a failed one whose units are still occupied."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import structlog
from pydantic import ValidationError

from node_agent.wiping.statement import StatementEnvelope, StatementRejected, open_statement
from orchestrator.allocations.failures import FAILURES, Code, silence
from orchestrator.allocations.outcomes import Begun, Concluded, Retry, Superseded, Waiting
from orchestrator.allocations.rules import is_proven, unproven_devices
from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store.advance import Change, advance_if, lock_allocation
from orchestrator.allocations.store.claims import close_claim, draw_fence, keep_waiting, start_waiting
from orchestrator.allocations.store.timeline import note
from orchestrator.allocations.store.waits import wait_for
from orchestrator.allocations.subject import LatestTask, Subject
from orchestrator.allocations.waits import Wait
from orchestrator.catalogue.shapes import Shape
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.operations.execution import Context, transact
from orchestrator.tasks.states import TaskState
from orchestrator.tasks.store.site_tasks import RELEASE_SECONDS_MAX, is_of_site
from orchestrator.tasks.store.tasks import (
    RELEASE_TYPES,
    issue_task,
    mark_task_expired,
    read_instructions,
    release_parameters,
)
from orchestrator.tenants.principals import Actor, ActorKind
from orchestrator.times import rfc3339
from orchestrator.wipes.store import issue_certificate, read_devices, read_findings

log = structlog.get_logger("orchestrator.releases")

DEVICES_NAMED_MAX = 5


async def begin_release(context: Context, allocation_id: UUID, notify: str) -> Begun | Superseded:
    """Issue the next attempt's task under a new fence, or return what an earlier call of the same workflow issued.

    Older live tasks are superseded. `Superseded`: there is nothing to clean up, or the attempts are exhausted.
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
    instructions = await read_instructions(tx, subject.id)
    faults = instructions.faults_for(context.fault_labels_allowed)
    by_site = subject.shape is Shape.BAREMETAL and await is_of_site(tx, subject.id, subject.node_id)
    seconds_max = RELEASE_SECONDS_MAX if by_site else context.limits.release_seconds_max
    issued = await issue_task(
        tx,
        context.signer,
        subject,
        RELEASE_TYPES[subject.shape],
        release_parameters(instructions, faults, context.limits.release_graceful_seconds),
        node_epoch=instructions.node_epoch,
        fence=fence,
        attempt=attempt,
        notify=notify,
        valid_seconds=seconds_max,
        by_site=by_site,
    )
    await note(tx, subject.id, Actor(ActorKind.WORKER, notify), "release_attempt", f"attempt {attempt}", fence)
    await wait_for(tx, subject, Wait.NODE, seconds_max, release_attempts=attempt)
    return Begun(issued.id, subject.seconds_until(issued.expires_at))


def _wants_cleanup(subject: Subject) -> bool:
    if subject.state is AllocationState.RELEASING:
        return True
    failed_with_units = subject.state is AllocationState.FAILED and not subject.claim_closed
    return failed_with_units and subject.claim_waits_for is not Wait.OPERATOR


def _already_begun(subject: Subject, notify: str) -> Begun | None:
    """The attempt that waits for the node or for its conclusion, if this workflow began it."""
    task = subject.task
    if task is None or subject.claim_waits_for is not Wait.NODE or task.notify != notify:
        return None
    return Begun(task.id, subject.seconds_until(task.expires_at) if task.live else 0.0, repeated=True)


Outcome = Concluded | Waiting | Retry | Superseded


async def finish_release(context: Context, allocation_id: UUID, notify: str | None = None) -> Outcome:
    """Conclude if the attempt's task has ended or passed its deadline. Safe to repeat.

    `notify`: the calling workflow; if another workflow issued the newest task, the caller is superseded.
    """
    return await transact(context, lambda tx: _finish(context, tx, allocation_id, notify))


async def _finish(context: Context, tx: Transaction, allocation_id: UUID, notify: str | None) -> Outcome:
    subject = await lock_allocation(tx, allocation_id)
    if subject is None:
        return Superseded(None)
    ended = _ended(subject)
    if ended is not None:
        return ended
    task = subject.task
    if task is None or (notify is not None and task.notify != notify):
        return Superseded(subject.state)
    if subject.claim_waits_for is Wait.RETRY:
        return Retry(subject.seconds_until(subject.claim_waits_until))
    if subject.claim_waits_for is not Wait.NODE:
        return Superseded(subject.state)
    if task.live:
        seconds_left = subject.seconds_until(task.expires_at)
        if seconds_left > 0:
            return Waiting(seconds_left)
        await mark_task_expired(tx, task.id)
    unproven: Sequence[str] = ()
    if task.state is TaskState.COMPLETED and task.result is not None and is_proven(task.result):
        unproven = unproven_devices(await read_devices(tx, subject.id, subject.node_id), task.result)
        if not unproven:
            return await _conclude(context, tx, subject, task)
    retries = context.limits.release_retries
    if retries.left_after(subject.release_attempts):
        seconds = retries.pause_seconds(subject.release_attempts)
        await wait_for(tx, subject, Wait.RETRY, seconds, release_attempts=subject.release_attempts)
        return Retry(seconds)
    return await _give_up(tx, subject, task, unproven)


def _ended(subject: Subject) -> Outcome | None:
    """The outcome for an allocation without a running cleanup."""
    match subject.state:
        case AllocationState.RELEASED | AllocationState.RELEASE_FAILED:
            return Concluded(subject.state)
        case AllocationState.FAILED if subject.claim_closed:
            return Concluded(subject.state)
        case AllocationState.FAILED if subject.claim_waits_for is Wait.OPERATOR:
            return Concluded(subject.state, code=Code.CLEANUP_EXHAUSTED, repeated=True)
        case AllocationState.FAILED | AllocationState.RELEASING:
            return None
        case _:
            return Superseded(subject.state)


async def _conclude(context: Context, tx: Transaction, subject: Subject, task: LatestTask) -> Concluded:
    await close_claim(tx, subject)
    concluded = await _record_proof(tx, subject, task, await _certify(context, tx, subject, task))
    await start_waiting(tx, subject.node_id, context.limits.requested_seconds_max)
    return concluded


async def _certify(context: Context, tx: Transaction, subject: Subject, task: LatestTask) -> str | None:
    """Issue the wipe certificate; return its digest. None without a statement of this release that can be opened: logged."""
    assert task.result is not None, "the caller checked the proof"
    signed = task.result.get("wipe_statement")
    if signed is None or context.signer is None:
        return None
    try:
        envelope = StatementEnvelope.model_validate(signed)
        opened = open_statement(envelope)
    except (ValidationError, StatementRejected) as error:  # the API takes none, unless it is of another version
        log.warning(
            "wipe_not_certified", allocation_id=str(subject.id), node_id=str(subject.node_id), why=str(error)[:500]
        )
        return None
    if (opened.predicate.allocation_id, opened.predicate.node_id) != (subject.id, subject.node_id):
        why = "the statement is about another allocation or node"
        log.error("wipe_not_certified", allocation_id=str(subject.id), node_id=str(subject.node_id), why=why)
        return None
    is_machine = opened.predicate.machine is not None
    machine = await read_findings(tx, subject.node_id, task.id) if is_machine else None
    return await issue_certificate(tx, context.signer, envelope, opened, subject.tenant_id, subject.clock, machine)


async def _record_proof(tx: Transaction, subject: Subject, task: LatestTask, certificate: str | None) -> Concluded:
    assert task.result is not None, "the caller checked the proof"
    if subject.state is AllocationState.FAILED:
        await note(tx, subject.id, _worker(task), "cleanup_proven", "the units are free again", subject.fence)
        return Concluded(AllocationState.FAILED)
    hard_stopped = task.result["hard_stopped"] is True
    if hard_stopped:
        how = FAILURES[Code.HARD_STOPPED].happened
        await note(tx, subject.id, _worker(task), Code.HARD_STOPPED, how, subject.fence)
    payload = {
        "hard_stopped": hard_stopped,
        "active_at": rfc3339(subject.active_at),
        "releasing_at": rfc3339(subject.releasing_at),
        "wipe_certificate_sha256": certificate,
    }
    # The statement repeats the result and is kept in the certificate, if there is one.
    is_kept = certificate is None and task.result.get("wipe_statement") is not None
    result = {name: value for name, value in task.result.items() if is_kept or name != "wipe_statement"}
    change = Change(
        AllocationState.RELEASED, subject.fence, EventType.RELEASING_COMPLETED, payload, release_result=result
    )
    await advance_if(tx, subject, change, _worker(task))
    code = Code.HARD_STOPPED if hard_stopped else None
    return Concluded(AllocationState.RELEASED, code, took_seconds=subject.seconds_since(subject.releasing_at))


async def _give_up(tx: Transaction, subject: Subject, task: LatestTask, unproven: Sequence[str]) -> Concluded:
    detail = f"{subject.release_attempts} attempts failed; the last: {_why(subject, task, unproven)}"
    if subject.state is AllocationState.FAILED:
        await _block(tx, subject, task, detail)
        return Concluded(AllocationState.FAILED, code=Code.CLEANUP_EXHAUSTED)
    await keep_waiting(tx, subject.claim_id, Wait.FORCE_RELEASE)
    change = Change(
        AllocationState.RELEASE_FAILED,
        subject.fence,
        EventType.RELEASE_FAILED,
        {"attempts": subject.release_attempts},
        waits_for=Wait.FORCE_RELEASE,
        code=Code.RELEASE_EXHAUSTED,
        detail=detail,
        release_result=task.result,
    )
    await advance_if(tx, subject, change, _worker(task))
    return Concluded(AllocationState.RELEASE_FAILED, code=Code.RELEASE_EXHAUSTED)


def _why(subject: Subject, task: LatestTask, unproven: Sequence[str]) -> str:
    """Why the last attempt failed: its code and a sentence."""
    if task.failure_code is not None:
        return f"{task.failure_code}, {task.failure_detail}"
    if unproven:
        named = ", ".join(unproven[:DEVICES_NAMED_MAX])
        return f"{Code.CLEANUP_FAILED}, the node's report does not prove the wipe of {len(unproven)} devices: {named}"
    if task.result is not None:
        return f"{Code.CLEANUP_FAILED}, the node's report does not prove the cleanup"
    return ", ".join(silence(subject.node_online))


async def _block(tx: Transaction, subject: Subject, task: LatestTask, detail: str) -> None:
    """Block the slots of a failed allocation until an operator acts, and emit `node.cleanup_blocked`. No transition."""
    await wait_for(tx, subject, Wait.OPERATOR, None, release_attempts=subject.release_attempts)
    await note(tx, subject.id, _worker(task), Code.CLEANUP_EXHAUSTED, detail, subject.fence)
    payload = {
        "node_id": str(subject.node_id),
        "allocation_id": str(subject.id),
        "code": Code.CLEANUP_EXHAUSTED,
        "detail": detail,
        "next_step": FAILURES[Code.CLEANUP_EXHAUSTED].next_step,
        "fence": subject.fence,
    }
    node = f"nodes/{subject.node_id}"
    await append_event(tx, Event(EventType.NODE_CLEANUP_BLOCKED, node, subject.correlation_id, None, payload))


def _worker(task: LatestTask) -> Actor:
    return Actor(ActorKind.WORKER, task.notify or "worker")
