"""An admin's word that nothing is left on an allocation's units, in the place of cleanup proof (P6). Written to the audit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from orchestrator.domain.errors import InvalidState, NotFound
from orchestrator.domain.events import EventType
from orchestrator.domain.states import FINAL_STATES, Actor, AllocationState
from orchestrator.domain.times import rfc3339
from orchestrator.domain.waits import Wait
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit
from orchestrator.store.allocation_rows import allocation_body, read_allocation
from orchestrator.store.allocations import Change, Subject, advance_if, lock_allocation
from orchestrator.store.claims import close_claim, draw_fence, start_waiting
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation
from orchestrator.store.tasks import supersede_live_tasks
from orchestrator.store.timeline import note

NOTE = "force_cleanup"
_WORD_TAKEN = frozenset({AllocationState.RELEASING, AllocationState.RELEASE_FAILED, AllocationState.FAILED})


async def force_cleanup(
    context: Context, operation: Operation, actor: Actor, allocation_id: UUID, reason: str
) -> Answer:
    """Answer 200 with the allocation: its claim is closed and its units are free, on the admin's statement.

    The caller has made sure that the statement was made. A releasing or release_failed allocation becomes `released`
    through releasing, in this transaction; a failed one stays failed. Live tasks become worthless under a new fence;
    metered time is not touched. Refusals: `NotFound`; `InvalidState` where a runtime may legitimately run, and where the
    units are free already.
    """

    async def effect(tx: Transaction) -> Done:
        subject = await lock_allocation(tx, allocation_id)
        if subject is None:
            raise NotFound(f"there is no allocation {allocation_id}")
        _require_stuck(subject)
        fence = await draw_fence(tx, subject.claim_id)
        await supersede_live_tasks(tx, subject.id)
        await close_claim(tx, subject.claim_id, subject.node_id)
        await note(tx, subject.id, actor, NOTE, reason, fence)
        detail = {"reason": reason, "runtime_verified_absent": True, "from_state": subject.state, "fence": fence}
        await audit.record(tx, actor, "allocation.force_cleanup", subject.name, detail, operation.request_id)
        if subject.state is not AllocationState.FAILED:
            await _release(context, tx, subject, operation, actor, fence, reason)
        await start_waiting(tx, subject.node_id, context.limits.requested_seconds_max)
        row = await read_allocation(tx, allocation_id, None)
        assert row is not None, "a locked allocation can be read"
        return Done(200, allocation_body(row), allocation_id)

    return await run_once(context, operation, effect, None)


def _require_stuck(subject: Subject) -> None:
    if subject.state not in _WORD_TAKEN and subject.state not in FINAL_STATES:
        raise InvalidState(
            f"the allocation is {subject.state}: something may rightly run on its units; force-release it first",
            state=subject.state,
        )
    if subject.claim_closed:
        raise InvalidState(
            f"the allocation is {subject.state} and its units are free; nothing is left to clean up",
            state=subject.state,
        )


async def _release(
    context: Context, tx: Transaction, subject: Subject, operation: Operation, actor: Actor, fence: int, reason: str
) -> None:
    if subject.state is AllocationState.RELEASE_FAILED:
        # Through releasing, as every end; the workflow that its event starts finds nothing to do.
        begun = Change(
            AllocationState.RELEASING,
            fence,
            EventType.RELEASING_REQUESTED,
            {"reason": reason, "actor_kind": actor.kind},
            waits_for=Wait.WORKER,
            wait_seconds=context.limits.requested_seconds_max,
            operation_key=operation.key,
            request_id=operation.request_id,
        )
        subject = replace(
            subject, state=AllocationState.RELEASING, row_version=await advance_if(tx, subject, begun, actor)
        )
    word = {"by": "admin", "principal": actor.id, "runtime_verified_absent": True, "reason": reason}
    # What a node would have to prove stays false: nobody wiped anything, somebody looked.
    result: dict[str, Any] = {
        "released": True, "hard_stopped": False, "wiped": False, "leases_released": False, "evidence": word,
    }  # fmt: skip
    payload = {
        "by": "admin",
        "hard_stopped": False,
        "evidence": {"runtime_verified_absent": True, "reason": reason},
        "active_at": rfc3339(subject.active_at),
        "releasing_at": rfc3339(subject.releasing_at),
    }
    done = Change(
        AllocationState.RELEASED,
        fence,
        EventType.RELEASING_COMPLETED,
        payload,
        release_result=result,
        operation_key=operation.key,
        request_id=operation.request_id,
    )
    await advance_if(tx, subject, done, actor)
