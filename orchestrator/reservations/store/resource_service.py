"""SQL that takes a registered resource out of service or back: row, event and audit change together."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from orchestrator.allocations.states import Actor
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.operations.store.operations import Operation
from orchestrator.reservations.refusals import ResourceNotFound
from orchestrator.reservations.store.resources import read_resource

IN_SERVICE, OUT_OF_SERVICE = "in_service", "out_of_service"
_LOCK = "select state, reason from resources where id = :id for no key update"
_SET = "update resources set state = :state, reason = :reason, row_version = row_version + 1 where id = :id"


async def change_service(
    tx: Transaction, resource_id: str, reason: str | None, actor: Actor, operation: Operation
) -> dict[str, Any]:
    """Take the resource out of service with a reason, or back into service without one; return its document.

    Its holder keeps it. A repetition is audited, but changes and emits nothing. Raises `ResourceNotFound`.
    """
    before = (await tx.execute(_LOCK, {"id": resource_id})).first()
    if before is None:
        raise ResourceNotFound(
            f"there is no registered resource {resource_id!r}; GET /api/v1/resources?kind=registered lists them",
            resources=[resource_id],
        )
    state = IN_SERVICE if reason is None else OUT_OF_SERVICE
    said = {"from": before.state, "to": state, **({} if reason is None else {"reason": reason})}
    subject = f"resources/{resource_id}"
    if (before.state, before.reason) != (state, reason):
        await tx.execute(_SET, {"id": resource_id, "state": state, "reason": reason})
        event = EventType.RESOURCE_IN_SERVICE if reason is None else EventType.RESOURCE_OUT_OF_SERVICE
        payload = {"resource_id": resource_id, **said}
        await append_event(tx, Event(event, subject, uuid4(), None, payload, operation.key, operation.request_id))
    await audit.record(tx, actor, f"resource.{state}", subject, said, operation.request_id)
    after = await read_resource(tx, resource_id, None)
    assert after is not None, "a locked resource can be read"
    return after.document
