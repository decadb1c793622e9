"""SQL that frees the units of a locked allocation by an operator's statement that nothing remains on them (P6)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from berth.process.json_objects import JsonMapping, JsonObject
from orchestrator.allocations.states import FINAL_STATES, AllocationState
from orchestrator.allocations.store.advance import Change, advance_if
from orchestrator.allocations.store.claims import close_claim, draw_fence, start_waiting
from orchestrator.allocations.store.timeline import note
from orchestrator.allocations.subject import Subject
from orchestrator.allocations.waits import Wait
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import EventType
from orchestrator.problems import InvalidState
from orchestrator.tasks.store.tasks import supersede_live_tasks
from orchestrator.tenants.principals import Actor
from orchestrator.times import rfc3339

NOTE = "force_cleanup"
_STATEMENT_TAKEN = frozenset({AllocationState.RELEASING, AllocationState.RELEASE_FAILED, AllocationState.FAILED})


@dataclass(frozen=True, slots=True)
class Statement:
    """The statement's reason, how long its waits last, and the client's operation.

    `approval`: members of the audit row that name the approval and both operators; empty: no approval was needed.
    """

    reason: str
    wait_seconds: float
    operation_key: str
    request_id: str | None
    approval: JsonMapping = field(default_factory=dict)


def require_stuck(subject: Subject) -> None:
    """Raise `InvalidState` if a workload may rightly run, or the units are free already."""
    if subject.state not in _STATEMENT_TAKEN and subject.state not in FINAL_STATES:
        raise InvalidState(
            f"the allocation is {subject.state}, so its workload may run; force-release it first",
            state=subject.state,
        )
    if subject.claim_closed:
        raise InvalidState(
            f"the allocation is {subject.state} and its units are free; there is nothing to clean up",
            state=subject.state,
        )


async def clean_up(tx: Transaction, subject: Subject, actor: Actor, statement: Statement) -> None:
    """Close the claim of a stuck allocation under a new fence, audited; `require_stuck` has accepted the subject."""
    fence = await draw_fence(tx, subject.claim_id)
    await supersede_live_tasks(tx, subject.id)
    await close_claim(tx, subject)
    await note(tx, subject.id, actor, NOTE, statement.reason, fence)
    detail = {
        "reason": statement.reason, "runtime_verified_absent": True, "from_state": subject.state, "fence": fence,
        **statement.approval,
    }  # fmt: skip
    await audit.record(tx, actor, "allocation.force_cleanup", subject.name, detail, statement.request_id)
    if subject.state is not AllocationState.FAILED:
        await _release(tx, subject, actor, fence, statement)
    await start_waiting(tx, subject.node_id, statement.wait_seconds)


async def _release(tx: Transaction, subject: Subject, actor: Actor, fence: int, statement: Statement) -> None:
    if subject.state is AllocationState.RELEASE_FAILED:
        # Through releasing, as every release; the workflow that this event starts finds nothing to do.
        begun = Change(
            AllocationState.RELEASING,
            fence,
            EventType.RELEASING_REQUESTED,
            {"reason": statement.reason, "actor_kind": actor.kind},
            waits_for=Wait.WORKER,
            wait_seconds=statement.wait_seconds,
            operation_key=statement.operation_key,
            request_id=statement.request_id,
        )
        subject = replace(
            subject, state=AllocationState.RELEASING, row_version=await advance_if(tx, subject, begun, actor)
        )
    word = {"by": "admin", "principal": actor.id, "runtime_verified_absent": True, "reason": statement.reason}
    # The items that only a node can prove stay false: an operator inspected the units, no node wiped them.
    result: JsonObject = {
        "released": True, "hard_stopped": False, "wiped": False, "leases_released": False, "evidence": word,
    }  # fmt: skip
    payload = {
        "by": "admin",
        "hard_stopped": False,
        "evidence": {"runtime_verified_absent": True, "reason": statement.reason},
        "active_at": rfc3339(subject.active_at),
        "releasing_at": rfc3339(subject.releasing_at),
    }
    done = Change(
        AllocationState.RELEASED,
        fence,
        EventType.RELEASING_COMPLETED,
        payload,
        release_result=result,
        operation_key=statement.operation_key,
        request_id=statement.request_id,
    )
    await advance_if(tx, subject, done, actor)
