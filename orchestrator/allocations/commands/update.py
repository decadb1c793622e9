"""Change the name and labels of an allocation that is not in a final state."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from orchestrator.allocations.states import FINAL_STATES
from orchestrator.allocations.store.advance import lock_allocation
from orchestrator.allocations.store.changing import change_names
from orchestrator.allocations.store.rows import allocation_body, read_allocation
from orchestrator.allocations.store.timeline import note
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import InvalidState, NotFound
from orchestrator.tenants.principals import Actor, ActorKind

NOTE = "updated"


async def update_allocation(
    context: Context,
    operation: Operation,
    actor: Actor,
    tenant_id: UUID,
    allocation_id: UUID,
    *,
    name: str | None,
    labels: Mapping[str, str] | None,
) -> Answer:
    """Return 200 with the allocation; None leaves a member as it is. Equal values change nothing and emit no event.

    The claim, its fence and its tasks stay as they are. Refusals, stored with the key: `NotFound` for an unknown allocation
    or another tenant's, `InvalidState` for a released or failed one.
    """

    async def effect(tx: Transaction) -> Done:
        subject = await lock_allocation(tx, allocation_id, tenant_id)
        if subject is None:
            raise NotFound(f"there is no allocation {allocation_id}")
        if subject.state in FINAL_STATES:
            raise InvalidState(f"the allocation is {subject.state}; its record is final", state=subject.state)
        changed = await change_names(tx, subject.id, name, labels)
        row = await read_allocation(tx, allocation_id, None)
        assert row is not None, "a locked allocation can be read"
        if not changed:
            return Done(200, allocation_body(row), allocation_id, "noop")
        await note(tx, subject.id, actor, NOTE, f"changed: {', '.join(changed)}", subject.fence)
        payload = {
            "allocation_id": str(subject.id), "changed": changed, "name": row.name, "labels": row.labels,
            "row_version": row.row_version, "actor_kind": actor.kind.value, "fence": subject.fence,
        }  # fmt: skip
        event = Event(
            EventType.ALLOCATION_UPDATED, subject.name, subject.correlation_id, subject.tenant_id, payload,
            operation.key, operation.request_id,
        )  # fmt: skip
        await append_event(tx, event)
        if actor.kind is ActorKind.ADMIN:
            detail = {"changed": changed, "name": row.name, "labels": row.labels}
            await audit.record(tx, actor, "allocation.update", subject.name, detail, operation.request_id)
        return Done(200, allocation_body(row), allocation_id)

    return await run_once(context, operation, effect, tenant_id)
