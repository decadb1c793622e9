"""Register something that can be reserved beside nodes and slots: a licence seat, an address, an InfiniBand partition."""

from __future__ import annotations

from uuid import uuid4

from orchestrator.domain.events import Event, EventType
from orchestrator.domain.reservations import ResourceState
from orchestrator.domain.states import Actor
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation
from orchestrator.store.outbox import append_event
from orchestrator.store.resources import insert_resource, read_resource, require_new_resource
from orchestrator.store.room import Table, require_room


async def create_resource(context: Context, operation: Operation, actor: Actor, resource_id: str) -> Answer:
    """201 with the resource, available. Refusals: `AlreadyExists`; `ResourceTableFull`, which is not remembered."""

    async def effect(tx: Transaction) -> Done:
        await require_new_resource(tx, resource_id)
        await require_room(tx, Table.RESOURCES, context.limits.resources_max)
        unit = await insert_resource(tx, resource_id)
        await append_event(
            tx,
            Event(
                EventType.RESOURCE_CREATED,
                subject=f"resources/{resource_id}",
                correlation_id=uuid4(),
                tenant_id=None,
                payload={"resource_id": resource_id, "units": [[unit, unit + 1]], "state": ResourceState.AVAILABLE},
                operation_key=operation.key,
                request_id=operation.request_id,
            ),
        )
        subject = f"resources/{resource_id}"
        await audit.record(tx, actor, "resource.create", subject, {"unit": unit}, operation.request_id)
        made = await read_resource(tx, resource_id, None)
        assert made is not None, "it has just been made"
        return Done(201, made.document)

    return await run_once(context, operation, effect, None)
