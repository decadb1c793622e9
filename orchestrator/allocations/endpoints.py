"""HTTP of allocations: create, read, change, release, verbs and certificates (tenants; operators name the tenant), and the admin
routes.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Annotated
from uuid import UUID

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from orchestrator import tracing
from orchestrator.allocations import queries as allocations
from orchestrator.allocations.commands.force import force_cleanup, force_release
from orchestrator.allocations.commands.release import release_allocation
from orchestrator.allocations.commands.update import Changes, update_allocation
from orchestrator.allocations.commands.verbs import order_verb
from orchestrator.allocations.rules import fault_labels
from orchestrator.allocations.schemas import (
    Allocation,
    AllocationQuery,
    ChangeAllocation,
    ConsumeReservation,
    CreateAllocation,
    CreatedAllocation,
    CreateOrConsume,
    ForceCleanup,
    ForceRelease,
    TimelineEntry,
    TimelineQuery,
    label_of,
)
from orchestrator.allocations.states import Verb
from orchestrator.approvals.endpoints import REQUESTED, request_second
from orchestrator.approvals.states import ApprovalAction
from orchestrator.http.answers import json_response
from orchestrator.http.asgi import Scope
from orchestrator.http.authentication import AdminCaller, Caller, TenantCaller
from orchestrator.http.fields import Nothing
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import IdempotencyKey, answer_response, operation_in
from orchestrator.http.paging import Page, identified_page, numbered_page, page_of
from orchestrator.http.services import Parts, Services
from orchestrator.http.tenant_scope import TenantQuery, scoped_tenant
from orchestrator.http.writes import AdminWrite, AnyWrite
from orchestrator.operations.queries import with_version
from orchestrator.operations.store.operations import Answer
from orchestrator.placement.store.placing import Create
from orchestrator.problems import Invalid
from orchestrator.reservations.commands.consume import Consume, consume_reservation
from orchestrator.reservations.store.turn_over import Start
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import (
    EVERY_OPERATOR,
    FLEET,
    NO_OPERATOR,
    NO_TENANT,
    SUPPORT,
    TENANT_READERS,
    TENANT_WRITERS,
)
from orchestrator.wipes.certificate import WipeCertificate

router = APIRouter(prefix="/allocations", tags=["allocations"], responses=PROBLEM_RESPONSES)
admin_router = APIRouter(prefix="/allocations", tags=["admin: allocations"], responses=PROBLEM_RESPONSES)


@router.post("", status_code=201, response_model=CreatedAllocation)
@requires(tenant=TENANT_WRITERS, operator=NO_OPERATOR)
async def create_allocation(
    body: CreateOrConsume, request: Request, caller: TenantCaller, parts: Parts, idempotency_key: IdempotencyKey = None
) -> Response:
    """Create an allocation from free GPUs, or from a claim of a reservation. 201 means that the units are the tenant's; they
    are usable once `active`.
    """
    if isinstance(body, CreateAllocation):
        return answer_response(await place_create(parts, request.scope, caller, body, idempotency_key))
    return answer_response(await consume(parts, request.scope, caller, body, idempotency_key))


async def place_create(
    parts: Services, scope: Scope, caller: Principal, body: CreateAllocation, key: str | None
) -> Answer:
    """The response to a tenant's create. Raises a `Problem` for what is not stored."""
    assert caller.tenant_id is not None
    _require_permitted_labels(parts, body.labels)
    correlation_id = uuid.uuid4()
    retention_seconds = parts.settings.operation_retention_seconds
    create = Create(
        operation=operation_in(scope, caller, key, body, retention_seconds),
        tenant_id=caller.tenant_id,
        actor_id=str(caller.id),
        sku=body.sku,
        gpus=body.gpus,
        region=body.region,
        image=body.image,
        ssh_key_ids=tuple(dict.fromkeys(body.ssh_key_ids)),
        name=body.name,
        labels=body.labels,
        user_data=body.user_data,
        correlation_id=correlation_id,
        ends_at=body.ends_at,
        restart_policy=body.restart_policy,
    )
    asked: tracing.Attributes = {"berth.sku": body.sku, "berth.gpus": body.gpus, "berth.region": body.region}
    with tracing.start_trace(correlation_id, "POST /api/v1/allocations", asked, scope["headers"]) as span:
        database = parts.context.database
        answer = await parts.gate.answer(
            create.operation, lambda: with_version(database, create.operation, parts.creates.answer(create))
        )
        if span is not None:
            span.set_attributes({"http.response.status_code": answer.status, "berth.replayed": answer.replayed})
    if answer.status == 201:
        scope["state"]["allocation_id"] = orjson.loads(answer.body)["allocation_id"]
    return answer


async def consume(
    parts: Services, scope: Scope, caller: Principal, body: ConsumeReservation, key: str | None
) -> Answer:
    """The response to a create from a reservation. Raises a `Problem` for what is not stored."""
    assert caller.tenant_id is not None
    _require_permitted_labels(parts, body.labels)
    correlation_id = uuid.uuid4()
    retention_seconds = parts.settings.operation_retention_seconds
    operation = operation_in(scope, caller, key, body, retention_seconds)
    wanted = Consume(
        body.reservation_id,
        body.holder_id,
        body.sku,
        body.image,
        Start(
            key=operation.key,
            fingerprint=operation.fingerprint,
            request_id=operation.request_id,
            correlation_id=correlation_id,
            ssh_key_ids=tuple(dict.fromkeys(body.ssh_key_ids)),
            name=body.name,
            labels=body.labels,
            user_data=body.user_data,
            restart_policy=body.restart_policy,
        ),
    )
    asked: tracing.Attributes = {"berth.reservation_id": str(body.reservation_id)}
    with tracing.start_trace(correlation_id, "POST /api/v1/allocations", asked, scope["headers"]) as span:
        answer = await consume_reservation(
            parts.context, parts.catalogue, operation, caller.actor, caller.tenant_id, wanted
        )
        if span is not None:
            span.set_attributes({"http.response.status_code": answer.status, "berth.replayed": answer.replayed})
    if answer.status == 201:
        scope["state"]["allocation_id"] = orjson.loads(answer.body)["allocation_id"]
    return answer


def _require_permitted_labels(parts: Services, labels: Mapping[str, str]) -> None:
    """Refuse fault labels if the deployment does not allow them. Raises `Invalid`."""
    refused = [] if parts.settings.fault_labels_allowed else fault_labels(labels)
    if refused:
        message = "fault labels are disabled in this deployment (BERTH_FAULT_LABELS_ALLOWED); remove the label"
        errors = [{"field": f"labels.{name}", "message": message} for name in refused]
        raise Invalid(f"{errors[0]['field']}: {message}", errors=errors)


@router.get("", response_model=Page[Allocation])
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def list_own(query: Annotated[AllocationQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """The tenant's allocations, newest last."""
    after, limit = identified_page(query, "allocations")
    tenant_id = scoped_tenant(caller, query.tenant_id)
    found = await allocations.list_allocations(
        parts.context.database, tenant_id, state=query.state, label=label_of(query), after=after, limit=limit
    )
    page = page_of(found, query.limit, "allocations", lambda item: item.place)
    return json_response({**page, "items": [item.document for item in page["items"]]})


@router.get("/{allocation_id}", response_model=Allocation)
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def find(allocation_id: UUID, query: Annotated[TenantQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """One allocation. One of the tenant's that was archived is 410 `archived`."""
    tenant_id = scoped_tenant(caller, query.tenant_id)
    found = await allocations.find_allocation(
        parts.context.database, allocation_id, tenant_id, for_operator=caller.tenant_id is None
    )
    return json_response(found)


@router.get("/{allocation_id}/timeline", response_model=Page[TimelineEntry])
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def list_timeline(
    allocation_id: UUID, query: Annotated[TimelineQuery, Query()], caller: Caller, parts: Parts
) -> Response:
    """The timeline of an allocation, oldest first."""
    kind = f"timeline of {allocation_id}"
    after, limit = numbered_page(query, kind)
    tenant_id = scoped_tenant(caller, query.tenant_id)
    found = await allocations.list_timeline(
        parts.context.database,
        allocation_id,
        tenant_id,
        after=after,
        limit=limit,
        for_operator=caller.tenant_id is None,
    )
    page = page_of(found, query.limit, kind, lambda item: item.place)
    return json_response({**page, "items": [item.document for item in page["items"]]})


@router.get("/{allocation_id}/wipe-certificate", response_model=WipeCertificate)
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def find_wipe_certificate(
    allocation_id: UUID, query: Annotated[TenantQuery, Query()], caller: Caller, parts: Parts
) -> Response:
    """What the node signed about the wipe of a released allocation, countersigned; `berth certificate verify` verifies it."""
    tenant_id = scoped_tenant(caller, query.tenant_id)
    found = await allocations.find_wipe_certificate(
        parts.context.database, allocation_id, tenant_id, for_operator=caller.tenant_id is None
    )
    return json_response(found)


@router.post("/{allocation_id}/release", status_code=202, response_model=Allocation)
@requires(tenant=TENANT_WRITERS, operator=SUPPORT)
async def release(
    allocation_id: UUID, query: Annotated[TenantQuery, Query()], write: AnyWrite, body: Nothing | None = None
) -> Response:
    """Release an allocation, or cancel it before it is active. Safe to repeat."""
    tenant_id = scoped_tenant(write.caller, query.tenant_id)
    releasing = release_allocation(write.context, write.operation(), write.actor, tenant_id, allocation_id)
    return answer_response(await write.traced("POST /api/v1/allocations/{id}/release", releasing))


async def _order_verb(write: AnyWrite, query: TenantQuery, allocation_id: UUID, verb: Verb) -> Response:
    tenant_id = scoped_tenant(write.caller, query.tenant_id)
    ordering = order_verb(write.context, write.operation(), write.actor, tenant_id, allocation_id, verb)
    return answer_response(await write.traced(f"POST /api/v1/allocations/{{id}}/{verb}", ordering))


@router.post("/{allocation_id}/reboot", status_code=202, response_model=Allocation)
@requires(tenant=TENANT_WRITERS, operator=SUPPORT)
async def reboot(
    allocation_id: UUID, query: Annotated[TenantQuery, Query()], write: AnyWrite, body: Nothing | None = None
) -> Response:
    """Stop and start the guest of an active allocation; its disk stays."""
    return await _order_verb(write, query, allocation_id, Verb.REBOOT)


@router.post("/{allocation_id}/stop", status_code=202, response_model=Allocation)
@requires(tenant=TENANT_WRITERS, operator=SUPPORT)
async def stop(
    allocation_id: UUID, query: Annotated[TenantQuery, Query()], write: AnyWrite, body: Nothing | None = None
) -> Response:
    """Stop the guest of an active allocation. Its units stay the tenant's, so metering goes on."""
    return await _order_verb(write, query, allocation_id, Verb.STOP)


@router.post("/{allocation_id}/start", status_code=202, response_model=Allocation)
@requires(tenant=TENANT_WRITERS, operator=SUPPORT)
async def start(
    allocation_id: UUID, query: Annotated[TenantQuery, Query()], write: AnyWrite, body: Nothing | None = None
) -> Response:
    """Start the stopped guest of an active allocation, with its disk and host key."""
    return await _order_verb(write, query, allocation_id, Verb.START)


@router.post("/{allocation_id}/rebuild", status_code=202, response_model=Allocation)
@requires(tenant=TENANT_WRITERS, operator=SUPPORT)
async def rebuild(
    allocation_id: UUID, query: Annotated[TenantQuery, Query()], write: AnyWrite, body: Nothing | None = None
) -> Response:
    """Make the guest of an active allocation anew on the same units. Its disk is discarded: everything on it is lost."""
    return await _order_verb(write, query, allocation_id, Verb.REBUILD)


@router.post("/{allocation_id}/rescue", status_code=202, response_model=Allocation)
@requires(tenant=TENANT_WRITERS, operator=SUPPORT)
async def rescue(
    allocation_id: UUID, query: Annotated[TenantQuery, Query()], write: AnyWrite, body: Nothing | None = None
) -> Response:
    """Start the rescue system on the machine of an active allocation; its disks are not opened. `start` and `reboot` leave it."""
    return await _order_verb(write, query, allocation_id, Verb.RESCUE)


@router.patch("/{allocation_id}", response_model=Allocation)
@requires(tenant=TENANT_WRITERS, operator=SUPPORT)
async def update(
    allocation_id: UUID, query: Annotated[TenantQuery, Query()], body: ChangeAllocation, write: AnyWrite
) -> Response:
    """Change the name, the labels or the end of an allocation that is not released or failed."""
    tenant_id = scoped_tenant(write.caller, query.tenant_id)
    if body.labels is not None:
        _require_permitted_labels(write.parts, body.labels)
    changes = Changes(body.name, body.labels, body.end)
    answer = await update_allocation(
        write.context, write.operation(body), write.actor, tenant_id, allocation_id, changes
    )
    return answer_response(answer)


@admin_router.get("", response_model=Page[Allocation])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_all(query: Annotated[AllocationQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """Allocations of all tenants, newest last."""
    after, limit = identified_page(query, "all allocations")
    found = await allocations.list_allocations(
        parts.context.database, query.tenant_id, state=query.state, label=label_of(query), after=after, limit=limit
    )
    page = page_of(found, query.limit, "all allocations", lambda item: item.place)
    return json_response({**page, "items": [item.document for item in page["items"]]})


@admin_router.get("/{allocation_id}", response_model=Allocation)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find_any(allocation_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """One allocation, of whichever tenant. One that was archived is 410 `archived`."""
    return json_response(
        await allocations.find_allocation(parts.context.database, allocation_id, None, for_operator=True)
    )


@admin_router.post("/{allocation_id}/force-release", status_code=202, response_model=Allocation)
@requires(tenant=NO_TENANT, operator=SUPPORT)
async def release_by_force(allocation_id: UUID, body: ForceRelease, write: AdminWrite) -> Response:
    """Release from any state that is not final, also a stuck one; audited."""
    releasing = force_release(write.context, write.operation(body), write.actor, allocation_id, body.reason)
    return answer_response(await write.traced("POST /api/v1/admin/allocations/{id}/force-release", releasing))


@admin_router.post("/{allocation_id}/force-cleanup", response_model=Allocation, responses=REQUESTED)
@requires(tenant=NO_TENANT, operator=FLEET)
async def clean_up_by_force(allocation_id: UUID, body: ForceCleanup, write: AdminWrite) -> Response:
    """Free the units by an operator's statement that nothing remains on them; audited."""
    if write.parts.settings.four_eyes:
        asked = {"reason": body.reason, "runtime_verified_absent": True}
        return await request_second(write, body, ApprovalAction.FORCE_CLEANUP, allocation_id, asked)
    return answer_response(
        await force_cleanup(write.context, write.operation(body), write.actor, allocation_id, body.reason)
    )
