"""Registers resources beside nodes and slots (licence seats, addresses, InfiniBand partitions) and changes their service."""

from __future__ import annotations

from uuid import uuid4

from orchestrator.audit import store as audit
from orchestrator.database.table_bounds import Table, require_room
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.reservations.states import ResourceState
from orchestrator.reservations.store.resources import (
    change_service,
    insert_resource,
    read_resource,
    require_new_resource,
)
from orchestrator.tenants.principals import Actor


async def create_resource(context: Context, operation: Operation, actor: Actor, resource_id: str) -> Answer:
    """Return 201 with the resource, available. Refusals: `AlreadyExists`; `ResourceTableFull`, which is not stored."""

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
        assert made is not None, "the resource was inserted"
        return Done(201, made.document)

    return await run_once(context, operation, effect, None)


async def put_back_resource(context: Context, operation: Operation, actor: Actor, resource_id: str) -> Answer:
    """Return 200 with the resource, back in service. A repetition changes nothing. Refusal: `ResourceNotFound`."""

    async def effect(tx: Transaction) -> Done:
        return Done(200, await change_service(tx, resource_id, None, actor, operation))

    return await run_once(context, operation, effect, None)


async def take_out_resource(
    context: Context, operation: Operation, actor: Actor, resource_id: str, *, reason: str
) -> Answer:
    """Return 200 with the resource, out of service: its holder keeps it, new holds are refused with the reason.

    A repetition changes nothing; another reason replaces the first. Refusal: `ResourceNotFound`.
    """

    async def effect(tx: Transaction) -> Done:
        return Done(200, await change_service(tx, resource_id, reason, actor, operation))

    return await run_once(context, operation, effect, None)
