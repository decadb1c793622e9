"""HTTP of reservations: hold, read, confirm and cancel (tenant zone; operators name the tenant)."""

from __future__ import annotations

import uuid
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from berth.process.json_objects import JsonObject
from orchestrator.allocations.rules import fault_labels
from orchestrator.http.answers import json_response
from orchestrator.http.asgi import Scope
from orchestrator.http.authentication import Caller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response, operation_in
from orchestrator.http.paging import Page, numbered_page, page_of
from orchestrator.http.services import Parts, Services
from orchestrator.http.tenant_scope import TenantQuery, scoped_tenant
from orchestrator.http.writes import AnyWrite, TenantWrite
from orchestrator.operations.queries import with_version
from orchestrator.operations.store.operations import Answer
from orchestrator.problems import Invalid
from orchestrator.reservations import queries as reservations
from orchestrator.reservations.commands.cancel import cancel_reservation
from orchestrator.reservations.commands.confirm import confirm_for_tenant
from orchestrator.reservations.hold_requests import GpuRequest, HoldRequest
from orchestrator.reservations.schemas import (
    ByHolder,
    HoldGpus,
    HoldNamed,
    HoldResources,
    Reservation,
    ReservationQuery,
)
from orchestrator.reservations.store.confirming import Confirm
from orchestrator.reservations.store.holding import Hold
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.refusals import ScopeRequired
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, NO_OPERATOR, SUPPORT, TENANT_READERS, TENANT_WRITERS
from orchestrator.tenants.scopes import Access, Noun, covers
from orchestrator.tenants.scopes import Scope as ScopeOfKeys

OF_CREATES = ScopeOfKeys(Noun.ALLOCATIONS, Access.WRITE)
"""What a hold with the template of an allocation needs beside its own scope."""

router = APIRouter(prefix="/reservations", tags=["reservations"], responses=PROBLEM_RESPONSES)


@router.post("", status_code=201, response_model=Reservation)
@requires(tenant=TENANT_WRITERS, operator=NO_OPERATOR)
async def hold(body: HoldResources, write: TenantWrite) -> Response:
    """Hold resources, or GPUs of a SKU, from now on or in a future window. A hold expires at its deadline unless confirmed."""
    return answer_response(await hold_for(write.parts, write.request.scope, write.caller, body, write.key))


async def hold_for(
    parts: Services, scope: Scope, caller: Principal, body: HoldNamed | HoldGpus, key: str | None
) -> Answer:
    """The response to a tenant's hold. Raises a `Problem` for what is not stored."""
    assert caller.tenant_id is not None
    _require_scope_of_template(caller, body)
    held = Hold(
        operation=operation_in(scope, caller, key, body, parts.settings.operation_retention_seconds),
        tenant_id=caller.tenant_id,
        holder_id=body.holder_id,
        starts_at=body.starts_at,
        ends_at=body.ends_at,
        ttl_seconds=_ttl_seconds(parts, body),
        template=_template_of(parts, body),
        name=body.name,
        correlation_id=uuid.uuid4(),
    )
    asked = HoldRequest(held, _wanted(body))
    database = parts.context.database
    return await parts.gate.answer(
        held.operation, lambda: with_version(database, held.operation, parts.holds.answer(asked))
    )


def _require_scope_of_template(caller: Principal, body: HoldNamed | HoldGpus) -> None:
    """Raise `ScopeRequired` if a key without the scope of creates would start an allocation by a reservation."""
    if isinstance(body, HoldGpus) and body.allocation is not None and not covers(caller.scopes, str(OF_CREATES)):
        raise ScopeRequired.of(OF_CREATES.sufficient)


def _ttl_seconds(parts: Services, body: HoldNamed | HoldGpus) -> float:
    """The requested TTL; without one the default, bounded by the deployment's maximum."""
    if "ttl_seconds" in body.model_fields_set:
        return body.ttl_seconds
    return min(body.ttl_seconds, parts.settings.hold_seconds_max)


def _wanted(body: HoldNamed | HoldGpus) -> tuple[str, ...] | GpuRequest:
    if isinstance(body, HoldNamed):
        return tuple(body.resources)
    starts = body.allocation
    image, user_data = (None, None) if starts is None else (starts.image, starts.user_data)
    return GpuRequest(
        body.sku, body.gpus, body.region, body.count or 1, image, starts is not None, user_data is not None
    )


def _template_of(parts: Services, body: HoldNamed | HoldGpus) -> JsonObject | None:
    """The template of the allocation that starts at `starts_at`. Raises `Invalid` for fault labels that are disabled."""
    if isinstance(body, HoldNamed) or body.allocation is None:
        return None
    refused = [] if parts.settings.fault_labels_allowed else fault_labels(body.allocation.labels)
    if refused:
        message = "fault labels are disabled in this deployment (BERTH_FAULT_LABELS_ALLOWED); remove the label"
        errors = [{"field": f"allocation.labels.{name}", "message": message} for name in refused]
        raise Invalid(f"{errors[0]['field']}: {message}", errors=errors)
    return body.allocation.model_dump(mode="json")


@router.get("", response_model=Page[Reservation])
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def list_own(query: Annotated[ReservationQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """The tenant's reservations, newest last."""
    after, limit = numbered_page(query, "reservations")
    tenant_id = scoped_tenant(caller, query.tenant_id)
    found = await reservations.list_reservations(
        parts.context.database, tenant_id, state=query.state, after=after, limit=limit
    )
    page = page_of(found, query.limit, "reservations", lambda item: item[0])
    return json_response({**page, "items": [document for _, document in page["items"]]})


@router.get("/{reservation_id}", response_model=Reservation)
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def find(reservation_id: UUID, query: Annotated[TenantQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """One reservation; 410 once its record was deleted after the retention."""
    tenant_id = scoped_tenant(caller, query.tenant_id)
    context = parts.context
    return json_response(
        await reservations.find_reservation(context.database, reservation_id, tenant_id, context.limits.shard)
    )


@router.post("/{reservation_id}/confirm", response_model=Reservation)
@requires(tenant=TENANT_WRITERS, operator=SUPPORT)
async def confirm(
    reservation_id: UUID, body: ByHolder, query: Annotated[TenantQuery, Query()], write: AnyWrite
) -> Response:
    """Confirm a hold. Safe to repeat."""
    tenant_id = scoped_tenant(write.caller, query.tenant_id)
    scope = write.request.scope
    return answer_response(
        await confirm_held(write.parts, scope, write.caller, tenant_id, reservation_id, body, write.key)
    )


async def confirm_held(
    parts: Services,
    scope: Scope,
    caller: Principal,
    tenant_id: UUID,
    reservation_id: UUID,
    body: ByHolder,
    key: str | None,
) -> Answer:
    """The response to a confirm of the tenant's reservation. Raises a `Problem` for what is not stored."""
    operation = operation_in(scope, caller, key, body, parts.settings.operation_retention_seconds)
    if caller.tenant_id is None:
        return await confirm_for_tenant(
            parts.context, operation, caller.actor, tenant_id, reservation_id, body.holder_id
        )
    database = parts.context.database
    asked = Confirm(operation, tenant_id, reservation_id, body.holder_id, claimant=database.claimant)
    return await parts.gate.answer(operation, lambda: with_version(database, operation, parts.confirms.answer(asked)))


@router.post("/{reservation_id}/cancel", response_model=Reservation)
@requires(tenant=TENANT_WRITERS, operator=SUPPORT)
async def cancel(
    reservation_id: UUID, body: ByHolder, query: Annotated[TenantQuery, Query()], write: AnyWrite
) -> Response:
    """Cancel a hold or a confirmed window. Safe to repeat."""
    tenant_id, operation = scoped_tenant(write.caller, query.tenant_id), write.operation(body)
    return answer_response(
        await cancel_reservation(write.context, operation, write.actor, tenant_id, reservation_id, body.holder_id)
    )
