"""SQL that begins the release of a locked allocation: its booking ends, and its units wait for cleanup (P6, P7).

An allocation that still waits for its units never ran on them: it is released at once, without a task. (Its task would carry
a newer fence than the allocation that occupies the units, whose tasks the node would then refuse.)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from berth.process.json_objects import JsonMapping
from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store.advance import Change, advance_if, lock_allocation
from orchestrator.allocations.store.claims import close_claim, draw_fence, end_right
from orchestrator.allocations.subject import Subject
from orchestrator.allocations.waits import Wait
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import EventType
from orchestrator.tasks.store.tasks import supersede_live_tasks
from orchestrator.tenants.principals import Actor, ActorKind
from orchestrator.times import rfc3339

_NEVER_STARTED = Actor(ActorKind.SYSTEM, "never_started")


@dataclass(frozen=True, slots=True)
class ReleaseOrder:
    """The reason of a release, how long a worker has to start it, and the client's operation, if there is one.

    `added`: further members of its event.
    """

    reason: str
    wait_seconds: float
    operation_key: str | None = None
    request_id: str | None = None
    added: JsonMapping = field(default_factory=dict)


async def order_release(tx: Transaction, subject: Subject, order: ReleaseOrder, actor: Actor) -> None:
    """Requested, provisioning, active or release_failed -> releasing (waiting for its units: -> released).

    A running task is worthless from now on; metered time ends. Raises as `advance_if`.
    """
    never_started = subject.waits_for is Wait.UNITS
    if never_started:
        fence = await draw_fence(tx, subject.claim_id)
        await close_claim(tx, subject)
    else:
        await supersede_live_tasks(tx, subject.id)
        fence = await end_right(tx, subject.claim_id, Wait.WORKER, order.wait_seconds)
    change = Change(
        AllocationState.RELEASING,
        fence,
        EventType.RELEASING_REQUESTED,
        {"reason": order.reason, "actor_kind": actor.kind, **order.added},
        waits_for=Wait.WORKER,
        wait_seconds=order.wait_seconds,
        operation_key=order.operation_key,
        request_id=order.request_id,
    )
    await advance_if(tx, subject, change, actor)
    if never_started:
        releasing = await lock_allocation(tx, subject.id)
        assert releasing is not None, "a locked allocation stays"
        await _conclude(tx, releasing, order)


async def _conclude(tx: Transaction, subject: Subject, order: ReleaseOrder) -> None:
    """releasing -> released: it was never on its units, so nothing of it can be left there."""
    evidence = {"by": "control_plane", "never_started": True}
    result = {"released": True, "hard_stopped": False, "wiped": False, "leases_released": False, "evidence": evidence}
    payload = {
        "by": "control_plane",
        "hard_stopped": False,
        "evidence": evidence,
        "active_at": rfc3339(subject.active_at),
        "releasing_at": rfc3339(subject.releasing_at),
    }
    change = Change(
        AllocationState.RELEASED,
        subject.fence,
        EventType.RELEASING_COMPLETED,
        payload,
        release_result=result,
        operation_key=order.operation_key,
        request_id=order.request_id,
    )
    await advance_if(tx, subject, change, _NEVER_STARTED)
