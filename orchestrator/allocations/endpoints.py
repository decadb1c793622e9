"""`POST /api/v1/allocations`: where an allocation begins (DESIGN §4, step 1)."""

from __future__ import annotations

import uuid
from collections.abc import MutableMapping
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response

from orchestrator import tracing
from orchestrator.allocations.rules import fault_labels
from orchestrator.allocations.schemas import CreateAllocation, CreatedAllocation
from orchestrator.allocations.states import Principal
from orchestrator.http.authentication import TenantCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import IdempotencyKey, answer_response, operation_in
from orchestrator.http.services import Parts, Services
from orchestrator.operations.store.operations import Answer
from orchestrator.placement.store.placing import Create
from orchestrator.problems import Invalid
from orchestrator.reservations.commands.consume import Consume, consume_reservation
from orchestrator.reservations.schemas import ConsumeReservation, CreateOrConsume
from orchestrator.reservations.store.turn_over import Start

router = APIRouter(tags=["allocations"])


@router.post("/allocations", status_code=201, response_model=CreatedAllocation, responses=PROBLEM_RESPONSES)
async def create_allocation(
    body: CreateOrConsume, request: Request, caller: TenantCaller, parts: Parts, idempotency_key: IdempotencyKey = None
) -> Response:
    """Ask for GPUs, or for what a reservation holds. The answer comes as soon as they are the tenant's for certain; they are
    usable once `active`.
    """
    if isinstance(body, CreateAllocation):
        return answer_response(await place_create(parts, request.scope, caller, body, idempotency_key))
    return answer_response(await consume(parts, request.scope, caller, body, idempotency_key))


async def place_create(
    parts: Services, scope: MutableMapping[str, Any], caller: Principal, body: CreateAllocation, key: str | None
) -> Answer:
    """The answer to a create of a tenant's. Raises the `Problem` that it met."""
    assert caller.tenant_id is not None
    _require_permitted_labels(parts, body)
    correlation_id = uuid.uuid4()
    retention_seconds = parts.settings.operation_retention_seconds
    create = Create(
        operation=operation_in(scope, caller, key, body.content(), retention_seconds),
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
    )
    asked: tracing.Attributes = {"berth.sku": body.sku, "berth.gpus": body.gpus, "berth.region": body.region}
    with tracing.begin_story(correlation_id, "POST /api/v1/allocations", asked, scope["headers"]) as span:
        answer = await parts.gate.answer(create.operation, lambda: parts.creates.answer(create))
        if span is not None:
            span.set_attributes({"http.response.status_code": answer.status, "berth.replayed": answer.replayed})
    if answer.status == 201:
        scope["state"]["allocation_id"] = orjson.loads(answer.body)["allocation_id"]
    return answer


async def consume(
    parts: Services, scope: MutableMapping[str, Any], caller: Principal, body: ConsumeReservation, key: str | None
) -> Answer:
    """The answer to a create from what a reservation of the tenant's holds. Raises the `Problem` that it met."""
    assert caller.tenant_id is not None
    _require_permitted_labels(parts, body)
    correlation_id = uuid.uuid4()
    retention_seconds = parts.settings.operation_retention_seconds
    operation = operation_in(scope, caller, key, body.model_dump(mode="json"), retention_seconds)
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
        ),
    )
    asked: tracing.Attributes = {"berth.reservation_id": str(body.reservation_id)}
    with tracing.begin_story(correlation_id, "POST /api/v1/allocations", asked, scope["headers"]) as span:
        answer = await consume_reservation(
            parts.context, parts.catalogue, operation, caller.actor, caller.tenant_id, wanted
        )
        if span is not None:
            span.set_attributes({"http.response.status_code": answer.status, "berth.replayed": answer.replayed})
    if answer.status == 201:
        scope["state"]["allocation_id"] = orjson.loads(answer.body)["allocation_id"]
    return answer


def _require_permitted_labels(parts: Services, body: CreateAllocation | ConsumeReservation) -> None:
    """Labels that throw fault switches are refused where the deployment does not allow them, rather than ignored."""
    refused = [] if parts.settings.fault_labels_allowed else fault_labels(body.labels)
    if refused:
        message = "fault switches are not allowed in this deployment (BERTH_FAULT_LABELS_ALLOWED)"
        errors = [{"field": f"labels.{name}", "message": message} for name in refused]
        raise Invalid(f"{errors[0]['field']}: {message}", errors=errors)
